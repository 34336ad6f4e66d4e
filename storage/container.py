"""The HDF5 file around a shard: made empty, with every dataset's place known, and then closed.

HDF5 writes only its own structure. The bytes go in afterwards, past the library, which is done with
the file by then: no dataset is larger than memory, no lock is held, and nothing is flushed twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import h5py

from . import codec
from .kept import Unchanged, gaps

ALIGNED_FROM_BYTES = 65536
_ALIGNMENT_BYTES = 4096
_BOTH_FILTERS = 0b11  # of a chunk that is not compressed: those of the pipeline that it has not met
_ELEMENTS = {
    1: h5py.h5t.STD_U8LE,
    2: h5py.h5t.STD_U16LE,
    4: h5py.h5t.STD_U32LE,
    8: h5py.h5t.STD_U64LE,
}


class _Location(Protocol):
    @property
    def id(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """A dataset's bytes in the file."""

    at: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Packing:
    """An array that is compressed: its chunks in order, as they are to be in the file.

    They are all of `chunk_bytes` when they are not compressed, of elements of `width` bytes; those
    that are that long in the file are not.
    """

    chunk_bytes: int
    width: int
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Container:
    """The places of a new file. An empty pack has no dataset.

    `arrays` are, by number, of those that are not compressed the places for what is new, still
    empty; `chunks` those of compressed ones.
    """

    arrays: Mapping[int, Extent]
    chunks: tuple[Extent, ...]
    pack: Extent
    digests: Extent
    index: Extent

    @property
    def extents(self) -> tuple[Extent, ...]:
        return (*self.arrays.values(), *self.chunks, self.pack, self.digests, self.index)


def create(
    path: Path,
    arrays_bytes: Sequence[int],
    others: Mapping[int, Unchanged | Packing],
    pack_bytes: int,
    digests_bytes: int,
    make_index: Callable[[Sequence[Sequence[Extent]], Extent], bytes],
) -> tuple[Container, bytes]:
    """Makes a file that must not exist yet, and the index, which must know the places in it.

    Of the arrays, by number, those that are unchanged, or some of it, become virtual datasets, and
    those that are compressed get their chunks now: HDF5 alone can say in its own structure how long
    each is.

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
            arrays: dict[int, Extent] = {}
            chunks: list[Extent] = []
            places: list[list[Extent]] = []
            for number, size_bytes in enumerate(arrays_bytes):
                match others.get(number):
                    case Unchanged() as there:
                        if there.new_bytes:
                            own = file.require_group("new")
                            arrays[number] = _allocate(own, _name(number), there.new_bytes)
                        _refer(group, number, there)
                        places.append([arrays.get(number, Extent(there.kept[0].at, size_bytes))])
                    case Packing() as packing:
                        places.append(_write_chunks(group, _name(number), size_bytes, packing))
                        chunks += places[-1]
                    case None:
                        arrays[number] = _allocate(group, _name(number), size_bytes)
                        places.append([arrays[number]])
            pack = _allocate(file, "pack", pack_bytes) if pack_bytes else Extent(0, 0)
            digests = _allocate(file, "digests", digests_bytes)
            index = make_index(places, pack)
            place = _allocate(file, "index", len(index))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise _refusal(error) from error
    return Container(arrays, tuple(chunks), pack, digests, place), index


def _refusal(error: Exception) -> OSError:
    """HDF5's texts have lines and addresses; only there it names the error when closing fails."""
    text = " ".join(str(error).split())
    named = re.search(r"errno = ([0-9]+)", text)
    number = int(named[1]) if named else getattr(error, "errno", None)
    if number is None:
        return OSError(f"HDF5 could not make the file: {text}")
    return OSError(number, os.strerror(number))


def _name(number: int) -> str:
    return f"{number:06d}"


def _dataset_properties() -> h5py.h5p.PropDCID:
    """Without times, which HDF5 would keep otherwise: what is made of the same is the same."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    return properties


def _refer(location: _Location, number: int, there: Unchanged) -> None:
    """A virtual dataset: HDF5 looks for the files in the folder of the one that names them."""
    properties = _dataset_properties()
    width, size_bytes = there.width, there.size_bytes

    def select(before: int, length: int, whole: int) -> h5py.h5s.SpaceID:
        space = h5py.h5s.create_simple((whole // width,))
        space.select_hyperslab((before // width,), (length // width,))
        return space

    def put(start: int, stop: int, file: str, dataset: str, before: int) -> None:
        length = stop - start
        properties.set_virtual(
            select(start, length, size_bytes),
            file.encode("ascii"),
            dataset.encode("ascii"),
            select(before, length, before + length),  # HDF5 takes only the selection from it
        )

    for one in there.kept:
        dataset = f"/{one.group}/{_name(one.dataset)}"
        put(one.start, one.stop, one.base, dataset, one.before)
    before = 0
    for start, stop in gaps(there.kept, size_bytes):
        put(start, stop, ".", f"/new/{_name(number)}", before)
        before += stop - start
    space = h5py.h5s.create_simple((size_bytes // width,))
    name = _name(number).encode("ascii")
    h5py.h5d.create(location.id, name, _ELEMENTS[width], space, properties)


def _write_chunks(
    location: _Location, name: str, size_bytes: int, packing: Packing
) -> list[Extent]:
    properties = _dataset_properties()
    properties.set_chunk((packing.chunk_bytes // packing.width,))
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_shuffle()
    # Optional, for HDF5 need not have it here: nothing passes through its filters.
    properties.set_filter(codec.ZSTD, h5py.h5z.FLAG_OPTIONAL, (codec.LEVEL,))
    space = h5py.h5s.create_simple((size_bytes // packing.width,))
    kind = _ELEMENTS[packing.width]
    dataset = h5py.h5d.create(location.id, name.encode("ascii"), kind, space, properties)
    extents = []
    for number, chunk in enumerate(packing.chunks):
        first = (number * packing.chunk_bytes // packing.width,)
        left_out = _BOTH_FILTERS if len(chunk) == packing.chunk_bytes else 0
        dataset.write_direct_chunk(first, chunk, left_out)
        extents.append(Extent(dataset.get_chunk_info_by_coord(first).byte_offset, len(chunk)))
    return extents


def _allocate(location: _Location, name: str, size_bytes: int) -> Extent:
    properties = _dataset_properties()
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((size_bytes,))
    kind = h5py.h5t.STD_U8LE
    dataset = h5py.h5d.create(location.id, name.encode("ascii"), kind, space, properties)
    return Extent(int(dataset.get_offset()), size_bytes)
