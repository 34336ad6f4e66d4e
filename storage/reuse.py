"""Arrays that have not changed since an earlier save stay in the file that has their bytes.

That file gets one more name, in the folder of the new save (a hard link): whatever happens to the
earlier checkpoint, the new one has all that it needs. An array whose first block differs costs the
digest of that block, no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from . import blocks, content
from .blocks import BLOCK_BYTES
from .condition import steps
from .errors import CheckpointDamaged, FormatUnknown, ManifestDamaged
from .index import Kept, Run
from .keys import Path as Key
from .keys import array_paths
from .layout import base_name, manifest_path, step_dir
from .leaf import Form, Leaf
from .manifest import Manifest
from .read_shard import Shard
from .receipt import Receipt
from .sealed import Json
from .write_shard import Source, Unchanged

_THREADS = 8


class _Saved(NamedTuple):
    """An array of the earlier save, and the file and dataset that have its bytes."""

    run: Run
    file: str
    size_bytes: int
    kept: Kept
    digests: bytes

    def may_stay(self, size_bytes: int, reuse: int) -> bool:
        """Whether it is as long, and was not left there too often yet."""
        return self.run.size_bytes == size_bytes and self.kept.saves <= reuse


class _Pair(NamedTuple):
    """An array as it is now, by its place among the large ones, and as it was saved."""

    place: int
    form: Form
    leaf: Leaf
    saved: _Saved


def unchanged(folder: Path, source: Source) -> dict[int, Unchanged]:
    """By place among the large arrays, those that an earlier save has; their files are linked.

    `folder` is that of the new shard. What cannot be linked is not among them.
    """
    directory = folder.parent.parent
    parent = _parent(directory, source.step, source.rank) if source.reuse else None
    if parent is None:
        return {}
    receipt, saved = parent
    pairs = list(_pairs(source, saved))
    equal = blocks.in_parallel(_is_same, pairs, _THREADS)
    found = {pair.place: pair.saved for pair, same in zip(pairs, equal, strict=True) if same}
    return _linked(folder, receipt, found)


def unchanged_copy(folder: Path, shard: Shard, reuse: int) -> dict[int, Unchanged]:
    """Likewise for a shard that is to be copied to `folder`: its digests say what is the same."""
    index = shard.index
    parent = _parent(folder.parent.parent, index.step, index.rank) if reuse else None
    if parent is None or index.block_bytes != BLOCK_BYTES:
        return {}
    receipt, saved = parent
    keys, found = _keys(index.tree), {}
    for place, run in enumerate(index.runs()[:-1]):
        assert run.array is not None
        one = saved.get(keys[run.array])
        if one and one.may_stay(run.size_bytes, reuse) and one.digests == shard.digests_of(run):
            found[place] = one
    return _linked(folder, receipt, found)


def _linked(folder: Path, receipt: Receipt, found: Mapping[int, _Saved]) -> dict[int, Unchanged]:
    """Those whose files could be linked into `folder`, out of that of the earlier receipt."""
    there = step_dir(folder.parents[1], receipt.step) / receipt.incarnation.folder
    bases = {one.kept.base: one for one in found.values()}
    linked = {
        base
        for base, one in bases.items()
        if _link(there / one.file, folder / base, one.size_bytes)
    }
    return {
        place: Unchanged(one.kept, one.run.at, one.digests, one.run.chunked)
        for place, one in found.items()
        if one.kept.base in linked
    }


def _pairs(source: Source, saved: Mapping[Key, _Saved]) -> Iterator[_Pair]:
    """Arrays that may be the same: as long under the same key, and not left too often yet."""
    keys = _keys(source.tree)
    for place, number in enumerate(source.large()):
        leaf = source.leaves[number]
        one = saved.get(keys[number])
        form = source.forms[leaf.form]
        if one and one.may_stay(form.size_bytes, source.reuse):
            yield _Pair(place, form, leaf, one)


def _parent(directory: Path, step: int, rank: int) -> tuple[Receipt, dict[Key, _Saved]] | None:
    """What this rank has in the newest committed step before, by key; None when nothing helps."""
    for before in steps(directory):
        if before >= step:
            continue
        with suppress(OSError, ManifestDamaged, FormatUnknown, CheckpointDamaged):
            manifest = Manifest.parse(manifest_path(directory, before).read_bytes())
            if rank >= manifest.world_size:
                return None
            receipt = manifest.receipts[rank]
            with Shard(step_dir(directory, before) / receipt.file, receipt) as shard:
                return receipt, dict(_saved(shard, receipt))
    return None


def _saved(shard: Shard, receipt: Receipt) -> Iterator[tuple[Key, _Saved]]:
    index = shard.index
    if index.block_bytes != BLOCK_BYTES:
        return
    own_name = base_name(receipt.rank, receipt.step, receipt.incarnation)
    keys = _keys(index.tree)
    for place, run in enumerate(index.runs()[:-1]):
        assert run.array is not None
        if place in index.kept:
            kept = index.kept[place]
            kept = Kept(kept.base, kept.dataset, kept.saves + 1)
            file, size_bytes = kept.base, receipt.bases[kept.base]
        else:
            kept = Kept(own_name, place, 1)
            file, size_bytes = Path(receipt.file).name, receipt.size_bytes
        yield keys[run.array], _Saved(run, file, size_bytes, kept, shard.digests_of(run))


def _keys(tree: Json) -> dict[int, Key]:
    """The first key of each array."""
    found: dict[int, Key] = {}
    for key, node in array_paths(tree):
        if "array" in node:
            found.setdefault(node["array"], key)
    return found


def _is_same(pair: _Pair) -> bool:
    form, digests = pair.form, pair.saved.digests
    width = blocks.DIGEST_BYTES
    for number, start in enumerate(range(0, form.size_bytes, BLOCK_BYTES)):
        stop = min(start + BLOCK_BYTES, form.size_bytes)
        found = blocks.digest(content.piece(form, pair.leaf.value, start, stop))
        if found != digests[number * width : (number + 1) * width]:
            return False
    return True


def _link(source: Path, target: Path, size_bytes: int) -> bool:
    """False where there can be no link, or the file is not what it was: it is written anew then."""
    try:
        # One that is there is of a save that failed, or of a node that copies the same: it stays.
        with suppress(FileExistsError):
            os.link(source, target)
        return target.samefile(source) and target.stat().st_size == size_bytes
    except OSError:
        return False
