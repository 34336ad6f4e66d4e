"""Blocks that have not changed since an earlier save stay in the files that have their bytes.

Those files get one more name each, in the folder of the new save (a hard link): whatever happens to
the earlier checkpoint, the new one has all that it needs.

Of each array one block in eight is looked at, at least one. An array in which none of these is as
it was is taken for changed, and costs no more than their digests; the others are compared block by
block.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from . import blocks, content
from .blocks import BLOCK_BYTES
from .condition import steps
from .errors import CheckpointDamaged, FormatUnknown, ManifestDamaged
from .index import Run
from .kept import Group, Kept, Unchanged, bases, gaps
from .keys import Path as Key
from .keys import array_paths
from .layout import base_name, manifest_path, step_dir
from .leaf import Form, Leaf
from .manifest import Manifest
from .read_shard import Shard
from .receipt import Receipt
from .sealed import Json
from .write_shard import Source

_THREADS = 8
_LOOKED_AT = 8  # of so many blocks one
_WORTH = 0.25  # of the space of an earlier shard, which lasts as long as a block of it is kept


class _Parent(NamedTuple):
    """What this rank has in the newest committed step before.

    `arrays` are its large ones by key, as the save that follows would say where they lie. `files`
    are those that have them, by the names that they get: the names they have there, and sizes.
    """

    folder: Path
    arrays: Mapping[Key, Unchanged]
    files: Mapping[str, tuple[str, int]]


class _Pair(NamedTuple):
    """An array as it is now, by its place among the large ones, and as it was saved."""

    place: int
    form: Form
    leaf: Leaf
    saved: Unchanged

    def is_same(self, block: int) -> bool:
        start = block * BLOCK_BYTES
        stop = min(start + BLOCK_BYTES, self.form.size_bytes)
        now = content.piece(self.form, self.leaf.value, start, stop)
        return blocks.digest(now) == self.saved.digests[block]


def unchanged(folder: Path, source: Source) -> dict[int, Unchanged]:
    """By place among the large arrays, what an earlier save has of them; its files are linked.

    `folder` is that of the new shard. What cannot be linked is not among it.
    """
    parent = _parent(folder, source.step, source.rank, source.reuse)
    if parent is None:
        return {}
    pairs = list(_pairs(source, parent))
    same = _same_blocks(pairs)
    return _linked(
        folder, parent, {pair.place: pair.saved.left(same[pair.place]) for pair in pairs}
    )


def unchanged_copy(folder: Path, shard: Shard, reuse: int) -> dict[int, Unchanged]:
    """Likewise for a shard that is to be copied to `folder`: its digests say what is the same."""
    index = shard.index
    parent = _parent(folder, index.step, index.rank, reuse)
    if parent is None or index.block_bytes != BLOCK_BYTES:
        return {}
    keys, found = _keys(index.tree), {}
    for place, run in enumerate(index.runs()[:-1]):
        assert run.array is not None
        saved = parent.arrays.get(keys[run.array])
        if saved is not None and saved.size_bytes == run.size_bytes:
            now = shard.digests_of(run)
            found[place] = saved.left({n for n, one in enumerate(now) if one == saved.digests[n]})
    return _linked(folder, parent, found)


def _pairs(source: Source, parent: _Parent) -> Iterator[_Pair]:
    """Arrays that may be the same: as long under the same key."""
    keys = _keys(source.tree)
    for place, number in enumerate(source.large()):
        leaf = source.leaves[number]
        saved = parent.arrays.get(keys[number])
        form = source.forms[leaf.form]
        if saved is not None and saved.size_bytes == form.size_bytes:
            yield _Pair(place, form, leaf, saved)


def _same_blocks(pairs: Iterable[_Pair]) -> Mapping[int, set[int]]:
    """By place, the blocks that are as they were; none of arrays that seem to have changed."""
    pairs = list(pairs)
    looked_at = {pair.place: _sample(pair.saved.blocks()) for pair in pairs}
    same = _compared((pair, block) for pair in pairs for block in looked_at[pair.place])
    rest = _compared(
        (pair, block)
        for pair in pairs
        if same[pair.place]
        for block in pair.saved.blocks()
        if block not in looked_at[pair.place]
    )
    return {pair.place: same[pair.place] | rest[pair.place] for pair in pairs}


def _sample(numbers: list[int]) -> list[int]:
    """Not the first ones: in tables that are sorted by frequency these change first."""
    return numbers[min(_LOOKED_AT // 2, len(numbers) - 1) :: _LOOKED_AT]


def _compared(wanted: Iterable[tuple[_Pair, int]]) -> defaultdict[int, set[int]]:
    """Those that are as they were, by the places of their arrays."""

    def is_same(one: tuple[_Pair, int]) -> tuple[int, int, bool]:
        pair, block = one
        return pair.place, block, pair.is_same(block)

    found: defaultdict[int, set[int]] = defaultdict(set)
    for place, block, same in blocks.in_parallel(is_same, wanted, _THREADS):
        if same:
            found[place].add(block)
    return found


def _linked(folder: Path, parent: _Parent, found: Mapping[int, Unchanged]) -> dict[int, Unchanged]:
    """What is worth it, out of files that could be linked into `folder`."""
    worth = _worthwhile(parent, found)
    linked = {
        base for base in bases(one.kept for one in worth.values()) if _link(parent, base, folder)
    }
    kept = {
        place: one.only(k for k in one.kept if k.base in linked) for place, one in worth.items()
    }
    return {place: one for place, one in kept.items() if one.kept}


def _worthwhile(parent: _Parent, found: Mapping[int, Unchanged]) -> dict[int, Unchanged]:
    """Arrays that lie together as a whole; of others what keeps no file's space for little."""
    used_bytes = Counter[str]()
    for one in found.values():
        for kept in one.kept:
            used_bytes[kept.base] += kept.size_bytes
    worth = set(bases(one.kept for one in found.values() if one.is_whole))
    worth |= {base for base, used in used_bytes.items() if used >= parent.files[base][1] * _WORTH}
    parts = {
        place: one if one.is_whole else one.only(k for k in one.kept if k.base in worth)
        for place, one in found.items()
    }
    return {
        place: one
        for place, one in parts.items()
        if one.is_whole or one.size_bytes - one.new_bytes >= BLOCK_BYTES
    }


def _parent(folder: Path, step: int, rank: int, reuse: int) -> _Parent | None:
    """None when nothing helps; `folder` is that of the new shard."""
    directory = folder.parents[1]
    for before in steps(directory) if reuse else ():
        if before >= step:
            continue
        with suppress(OSError, ManifestDamaged, FormatUnknown, CheckpointDamaged):
            manifest = Manifest.parse(manifest_path(directory, before).read_bytes())
            if rank >= manifest.world_size:
                return None
            receipt = manifest.receipts[rank]
            path = step_dir(directory, before) / receipt.file
            with Shard(path, receipt) as shard:
                return _Parent(path.parent, dict(_arrays(shard, receipt, reuse)), _files(receipt))
    return None


def _files(receipt: Receipt) -> dict[str, tuple[str, int]]:
    own = (Path(receipt.file).name, receipt.size_bytes)
    shared = {base: (base, size_bytes) for base, size_bytes in receipt.bases.items()}
    return {_name(receipt): own, **shared}


def _name(receipt: Receipt) -> str:
    return base_name(receipt.rank, receipt.step, receipt.incarnation)


def _arrays(shard: Shard, receipt: Receipt, reuse: int) -> Iterator[tuple[Key, Unchanged]]:
    """Without what was left where it is for so many saves."""
    index = shard.index
    if index.block_bytes != BLOCK_BYTES:
        return
    keys = _keys(index.tree)
    for place, run in enumerate(index.runs()[:-1]):
        assert run.array is not None
        kept = [one for one in _where(run, place, _name(receipt)) if one.saves <= reuse]
        digests = tuple(shard.digests_of(run))
        yield keys[run.array], Unchanged(run.size_bytes, tuple(kept), digests, run.chunked)


def _where(run: Run, place: int, own: str) -> list[Kept]:
    """All of an array; what is new in the shard is left in it once."""
    found = [replace(one, saves=one.saves + 1) for one in run.kept]
    group: Group = "new" if run.kept else "t"
    before = 0
    for start, stop in gaps(run.kept, run.size_bytes):
        found.append(Kept(start, stop, own, group, place, before, run.at + before, 1))
        before += stop - start
    return sorted(found, key=lambda one: one.start)


def _keys(tree: Json) -> dict[int, Key]:
    """The first key of each array."""
    found: dict[int, Key] = {}
    for key, node in array_paths(tree):
        if "array" in node:
            found.setdefault(node["array"], key)
    return found


def _link(parent: _Parent, base: str, folder: Path) -> bool:
    """False where there can be no link, or the file is not what it was: it is written anew then."""
    name, size_bytes = parent.files[base]
    source, target = parent.folder / name, folder / base
    try:
        # One that is there is of a save that failed, or of a node that copies the same: it stays.
        with suppress(FileExistsError):
            os.link(source, target)
        return target.samefile(source) and target.stat().st_size == size_bytes
    except OSError:
        return False
