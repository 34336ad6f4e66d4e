"""Writes one rank's file: an HDF5 container first, then the bytes, past the library."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from . import blocks
from .container import ALIGNED_FROM_BYTES, Container, Extent, create
from .index import Entry, Index
from .layout import Incarnation
from .leaf import Leaf
from .output import Output
from .sealed import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Whose state this is, and the state."""

    step: int
    rank: int
    world_size: int
    incarnation: Incarnation
    tree: Json
    leaves: Sequence[Leaf]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a receipt must say of the file."""

    size_bytes: int
    digest: str
    index: Extent
    digests: Extent


def write_shard(path: Path, source: Source) -> Written:
    """Makes `path`, which must not exist, and fsyncs it. Raises OSError; a torn file may stay."""
    leaves = source.leaves
    own = [leaf for leaf in leaves if not _is_packed(leaf)]
    packed = [leaf for leaf in leaves if _is_packed(leaf)]
    sizes = [leaf.size_bytes for leaf in own]
    pack_bytes = sum(leaf.size_bytes for leaf in packed)
    rows = sum(map(blocks.count, [*sizes, pack_bytes])) + 1
    _require_space(path.parent, sum(sizes) + pack_bytes)
    container, index = create(
        path,
        sizes,
        pack_bytes,
        rows * blocks.DIGEST_BYTES,
        lambda arrays, pack: _index(source, arrays, pack).to_bytes(),
    )
    with Output(path) as output:
        size_bytes = os.fstat(output.fd).st_size
        output.reserve(size_bytes)
        structure = blocks.digest_outside(
            output.fd, [(extent.at, extent.size_bytes) for extent in container.extents]
        )
        digests = b"".join([*output.write(_content(container, own, packed)), structure])
        for extent, data in ((container.digests, digests), (container.index, index)):
            output.write(blocks.split(extent.at, memoryview(data)))
        os.fsync(output.fd)
    return Written(
        size_bytes=size_bytes,
        digest=blocks.digest(index, digests).hex(),
        index=container.index,
        digests=container.digests,
    )


def _is_packed(leaf: Leaf) -> bool:
    return leaf.size_bytes < ALIGNED_FROM_BYTES


def _require_space(folder: Path, size_bytes: int) -> None:
    """Raises OSError when the file system says that it is too full, before a file is made."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _content(
    container: Container, own: Sequence[Leaf], packed: Sequence[Leaf]
) -> Iterator[blocks.Block]:
    for extent, leaf in zip(container.arrays, own, strict=True):
        yield from blocks.split(extent.at, leaf.content())
    pack = memoryview(b"".join(leaf.content() for leaf in packed))
    yield from blocks.split(container.pack.at, pack)


def _index(source: Source, arrays: Sequence[Extent], pack: Extent) -> Index:
    own = iter(arrays)
    packed = [leaf.size_bytes for leaf in source.leaves if _is_packed(leaf)]
    starts = accumulate(packed, initial=0)
    return Index(
        step=source.step,
        rank=source.rank,
        world_size=source.world_size,
        writer=source.incarnation.folder,
        block_bytes=blocks.BLOCK_BYTES,
        tree=source.tree,
        entries=tuple(
            _entry(leaf, next(starts) if _is_packed(leaf) else next(own).at)
            for leaf in source.leaves
        ),
        pack_at=pack.at,
        pack_bytes=pack.size_bytes,
    )


def _entry(leaf: Leaf, at: int) -> Entry:
    return Entry(
        kind=leaf.kind,
        dtype=leaf.dtype,
        shape=leaf.shape,
        size_bytes=leaf.size_bytes,
        at=at,
        packed=_is_packed(leaf),
        global_shape=leaf.shape,
        offset=(0,) * len(leaf.shape),
    )
