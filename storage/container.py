"""The HDF5 file around a shard: made empty, with every dataset's place known, and then closed.

HDF5 writes only its own structure. The bytes go in afterwards, past the library, which is done with
the file by then: no dataset is larger than memory, no lock is held, and nothing is flushed twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import h5py

ALIGNED_FROM_BYTES = 65536
_ALIGNMENT_BYTES = 4096


class _Location(Protocol):
    @property
    def id(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """A dataset's bytes in the file."""

    at: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where an array lies that is not in the new file: `/t/<dataset>` of a file beside it."""

    file: str
    dataset: int
    at: int


@dataclass(frozen=True, slots=True)
class Container:
    """The places of a new file. `arrays` are those of `/t` in it; an empty pack has no dataset."""

    arrays: tuple[Extent, ...]
    pack: Extent
    digests: Extent
    index: Extent

    @property
    def extents(self) -> tuple[Extent, ...]:
        return (*self.arrays, self.pack, self.digests, self.index)


def create(
    path: Path,
    arrays_bytes: Sequence[int],
    elsewhere: Mapping[int, Elsewhere],
    pack_bytes: int,
    digests_bytes: int,
    make_index: Callable[[Sequence[int], Extent], bytes],
) -> tuple[Container, bytes]:
    """Makes a file that must not exist yet, and the index, which must know the places in it.

    Of the arrays, those that are `elsewhere`, by number, become virtual datasets.

    Raises OSError, also where h5py would raise something else.
    """
    try:
        # v110 puts checksums on HDF5's structures, which the default does not, and 1.10 reads it.
        with h5py.File(
            path,
            "x",
            libver=("v110", "v110"),
            locking=False,
            alignment_threshold=ALIGNED_FROM_BYTES,
            alignment_interval=_ALIGNMENT_BYTES,
        ) as file:
            group = file.create_group("t")
            own = {}
            for number, size_bytes in enumerate(arrays_bytes):
                if number in elsewhere:
                    _refer(group, number, size_bytes, elsewhere[number])
                else:
                    own[number] = _allocate(group, _name(number), size_bytes)
            pack = _allocate(file, "pack", pack_bytes) if pack_bytes else Extent(0, 0)
            digests = _allocate(file, "digests", digests_bytes)
            places: dict[int, Extent | Elsewhere] = {**own, **elsewhere}
            index = make_index([places[number].at for number in sorted(places)], pack)
            place = _allocate(file, "index", len(index))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise _refusal(error) from error
    return Container(tuple(own.values()), pack, digests, place), index


def _refusal(error: Exception) -> OSError:
    """HDF5 names the error of the system only in its text, when closing the file fails."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    text = f"HDF5 could not make the file: {error}"
    named = re.search(r"errno = ([0-9]+)", text)
    return OSError(int(named[1]), text) if named else OSError(text)


def _name(number: int) -> str:
    return f"{number:06d}"


def _refer(location: _Location, number: int, size_bytes: int, there: Elsewhere) -> None:
    """A virtual dataset: HDF5 looks for the file in the folder of the one that names it."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple((size_bytes,))
    source = f"/t/{_name(there.dataset)}".encode("ascii")
    properties.set_virtual(space, there.file.encode("ascii"), source, space)
    name = _name(number).encode("ascii")
    h5py.h5d.create(location.id, name, h5py.h5t.STD_U8LE, space, properties)


def _allocate(location: _Location, name: str, size_bytes: int) -> Extent:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((size_bytes,))
    kind = h5py.h5t.STD_U8LE
    dataset = h5py.h5d.create(location.id, name.encode("ascii"), kind, space, properties)
    return Extent(int(dataset.get_offset()), size_bytes)
