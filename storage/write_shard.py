"""Writes one rank's file: an HDF5 container first, then the bytes, past the library."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from . import blocks, content, pack
from .container import ALIGNED_FROM_BYTES, Container, Extent, create
from .index import Index
from .kept import Unchanged, gaps
from .layout import Incarnation
from .leaf import Form, Leaf
from .notes import Notes
from .output import Output, Run, run_of, way_to_write
from .progress import Advance, Progress, ignored, unseen
from .sealed import Json
from .way import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Whose state this is, and the state.

    Attributes:
        borrows: ranks that write arrays of this state, as they are replicated.
        shares_digest: of who writes which replicated array; empty when none is.
        notes: for the receipt.
        reuse: for how many saves in a row an array that does not change is left where it is.
    """

    step: int
    rank: int
    world_size: int
    incarnation: Incarnation
    tree: Json
    forms: Sequence[Form]
    leaves: Sequence[Leaf]
    borrows: Sequence[int]
    shares_digest: str
    notes: Notes
    reuse: int = 0

    @property
    def payload_bytes(self) -> int:
        sizes = [form.size_bytes for form in self.forms]
        return sum(sizes[leaf.form] for leaf in self.leaves)

    def large(self) -> list[int]:
        """The arrays that get datasets of their own, by their numbers; others are packed."""
        own = [form.size_bytes >= ALIGNED_FROM_BYTES for form in self.forms]
        return [number for number, leaf in enumerate(self.leaves) if own[leaf.form]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a receipt must say of the file."""

    size_bytes: int
    digest: str
    index: Extent
    digests: Extent


def write_shard(
    path: Path, source: Source, unchanged: Mapping[int, Unchanged], shown: Progress = unseen
) -> Written:
    """Makes `path`, which must not exist, and fsyncs it. Raises OSError; a torn file may stay.

    `unchanged` says what of arrays need not be written, by their place among the large ones.
    """
    forms = source.forms
    own = [source.leaves[number] for number in source.large()]
    packed = [leaf for leaf in source.leaves if forms[leaf.form].size_bytes < ALIGNED_FROM_BYTES]
    sizes = [forms[leaf.form].size_bytes for leaf in own]
    pack_bytes = sum(forms[leaf.form].size_bytes for leaf in packed)
    rows = sum(map(blocks.count, [*sizes, pack_bytes])) + 1
    saved_bytes = sum(one.size_bytes - one.new_bytes for one in unchanged.values())
    new_bytes = pack_bytes + sum(sizes) - saved_bytes
    _require_space(path.parent, new_bytes)
    way = way_to_write(path.parent, new_bytes)
    container, index = create(
        path,
        sizes,
        unchanged,
        pack_bytes,
        rows * blocks.DIGEST_BYTES,
        lambda places, pack_place: _index(source, unchanged, places, pack_place).to_bytes(),
    )
    with shown(new_bytes) as advance, content.pieces(own[n] for n in container.arrays) as piece:
        arrays = (
            run
            for n, extent in container.arrays.items()
            for run in new_runs(
                extent,
                unchanged.get(n) or Unchanged(sizes[n]),
                partial(piece, forms[own[n].form], content.in_order(own[n].value)),
            )
        )
        runs = chain(arrays, pack.runs(container.pack.at, forms, packed))
        return complete(
            path,
            way,
            container,
            index,
            runs,
            lambda found: _all_digests(sizes, unchanged, found),
            advance,
        )


def complete(
    path: Path,
    way: Way,
    container: Container,
    index: bytes,
    runs: Iterable[Run],
    all_digests: Callable[[Sequence[bytes]], Iterable[bytes]],
    advance: Advance = ignored,
) -> Written:
    """Writes what a new file has room for, and fsyncs it. Raises OSError.

    `all_digests` makes those of all blocks of the shard out of those of the runs.
    """
    with Output(path, way) as output:
        size_bytes = os.fstat(output.fd).st_size
        output.reserve(size_bytes)
        structure = blocks.digest_outside(
            output.fd, [(extent.at, extent.size_bytes) for extent in container.extents]
        )
        digests = b"".join([*all_digests(output.write(runs, advance)), structure])
        output.write([run_of(container.digests.at, digests), run_of(container.index.at, index)])
        os.fsync(output.fd)
    return Written(
        size_bytes=size_bytes,
        digest=blocks.digest(index, digests).hex(),
        index=container.index,
        digests=container.digests,
    )


def _all_digests(
    sizes: Sequence[int], unchanged: Mapping[int, Unchanged], written: Sequence[bytes]
) -> Iterator[bytes]:
    """In the order of the arrays, then those of the pack."""
    new = iter(written)
    for number, size_bytes in enumerate(sizes):
        there = unchanged.get(number) or Unchanged(size_bytes)
        kept = set(there.blocks())
        for block in range(blocks.count(size_bytes)):
            yield there.digests[block] if block in kept else next(new)
    yield from new


def _require_space(folder: Path, size_bytes: int) -> None:
    """Raises OSError when the file system says that it is too full, before a file is made."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def new_runs(
    extent: Extent, there: Unchanged, piece: Callable[[int, int], memoryview]
) -> Iterator[Run]:
    """What of an array has to be written, with its place; `piece` gives bytes of the array."""

    def shifted(start: int) -> Callable[[int, int], memoryview]:
        return lambda begin, end: piece(start + begin, start + end)

    at = extent.at
    for start, stop in gaps(there.kept, there.size_bytes):
        yield Run(at, stop - start, shifted(start))
        at += stop - start


def _index(
    source: Source,
    unchanged: Mapping[int, Unchanged],
    places: Sequence[Sequence[Extent]],
    pack_place: Extent,
) -> Index:
    return Index(
        step=source.step,
        rank=source.rank,
        world_size=source.world_size,
        writer=source.incarnation.folder,
        block_bytes=blocks.BLOCK_BYTES,
        packed_below_bytes=ALIGNED_FROM_BYTES,
        tree=source.tree,
        borrows=tuple(source.borrows),
        forms=tuple(source.forms),
        arrays=tuple(leaf.form for leaf in source.leaves),
        at=tuple(extent.at for (extent,) in places),
        pack_at=pack_place.at,
        pack_bytes=pack_place.size_bytes,
        kept={place: one.kept for place, one in unchanged.items()},
        chunked={n: one.chunked for n, one in unchanged.items() if one.chunked is not None},
    )
