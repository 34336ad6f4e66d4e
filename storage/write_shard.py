"""Writes one rank's file: an HDF5 container first, then the bytes, past the library."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from . import blocks, content, pack
from .container import ALIGNED_FROM_BYTES, Extent, create
from .index import Index
from .layout import Incarnation
from .leaf import Form, Leaf
from .notes import Notes
from .output import Output, Run, run_of, way_to_write
from .sealed import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Whose state this is, and the state.

    Attributes:
        borrows: ranks that write arrays of this state, as they are replicated.
        shares_digest: of who writes which replicated array; empty when none is.
        notes: for the receipt.
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

    @property
    def payload_bytes(self) -> int:
        sizes = [form.size_bytes for form in self.forms]
        return sum(sizes[leaf.form] for leaf in self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a receipt must say of the file."""

    size_bytes: int
    digest: str
    index: Extent
    digests: Extent


def write_shard(path: Path, source: Source) -> Written:
    """Makes `path`, which must not exist, and fsyncs it. Raises OSError; a torn file may stay."""
    forms = source.forms
    own = [leaf for leaf in source.leaves if not _is_packed(forms[leaf.form])]
    packed = [leaf for leaf in source.leaves if _is_packed(forms[leaf.form])]
    sizes = [forms[leaf.form].size_bytes for leaf in own]
    pack_bytes = sum(forms[leaf.form].size_bytes for leaf in packed)
    rows = sum(map(blocks.count, [*sizes, pack_bytes])) + 1
    _require_space(path.parent, sum(sizes) + pack_bytes)
    way = way_to_write(path.parent, sum(sizes) + pack_bytes)
    container, index = create(
        path,
        sizes,
        pack_bytes,
        rows * blocks.DIGEST_BYTES,
        lambda arrays, place: _index(source, arrays, place).to_bytes(),
    )
    with Output(path, way) as output:
        size_bytes = os.fstat(output.fd).st_size
        output.reserve(size_bytes)
        structure = blocks.digest_outside(
            output.fd, [(extent.at, extent.size_bytes) for extent in container.extents]
        )
        arrays = (
            _run(extent, forms, leaf) for extent, leaf in zip(container.arrays, own, strict=True)
        )
        runs = chain(arrays, pack.runs(container.pack.at, forms, packed))
        digests = b"".join([*output.write(runs), structure])
        output.write([run_of(container.digests.at, digests), run_of(container.index.at, index)])
        os.fsync(output.fd)
    return Written(
        size_bytes=size_bytes,
        digest=blocks.digest(index, digests).hex(),
        index=container.index,
        digests=container.digests,
    )


def _is_packed(form: Form) -> bool:
    return form.size_bytes < ALIGNED_FROM_BYTES


def _require_space(folder: Path, size_bytes: int) -> None:
    """Raises OSError when the file system says that it is too full, before a file is made."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _run(extent: Extent, forms: Sequence[Form], leaf: Leaf) -> Run:
    form = forms[leaf.form]
    return Run(extent.at, form.size_bytes, partial(content.piece, form, leaf.value))


def _index(source: Source, arrays: Sequence[Extent], pack_place: Extent) -> Index:
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
        at=tuple(extent.at for extent in arrays),
        pack_at=pack_place.at,
        pack_bytes=pack_place.size_bytes,
    )
