"""A rank's state out of a checkpoint, by the ranks that saved it or by another number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np

from relight.counted import counted

from . import content
from .boxes import Box
from .errors import PartsUnfit, WorldChanged
from .garbage import no_search
from .keys import Path as Key
from .keys import array_paths, part_of_path, replaced
from .leaf import Form
from .manifest import Manifest
from .node_reads import Neighbours
from .numpy_state import Buffer, in_pages
from .parts import Parts, SavedPart, misfit, parts_of
from .progress import Progress, unseen
from .read_shard import Damage
from .rebuild import rebuild
from .sealed import Json
from .shards import Place, Shards
from .targets import fitting

State = dict[str, object]
Wanted = Mapping[str, object]


def load_shard(
    directory: Path,
    manifest: Manifest,
    rank: int,
    world_size: int | None = None,
    tier: Path | None = None,
    neighbours: Neighbours | None = None,
    shown: Progress = unseen,
    into: Mapping[Key, object] = MappingProxyType({}),
) -> State:
    """A rank's state as it was saved; every block is checked while it is read.

    Shards that are in a node's `tier` too are read there. What `neighbours`, who all have to call
    this, want too is read by one of them. Tensors come back on the CPU. Arrays of the program, as
    in `Needs.into`, are written over where they fit, and are in the state then; when this raises,
    they may hold anything.
    Raises CheckpointDamaged, WorldChanged, PartsUnfit, FormatUnknown.
    """
    if world_size not in (None, manifest.world_size):
        raise WorldChanged(manifest.world_size, counted(world_size, "rank"))
    if not 0 <= rank < manifest.world_size:
        raise WorldChanged(manifest.world_size, f"rank {rank}")
    with Shards(directory, manifest, tier) as shards, understood(shards, rank):
        tree = shards.index(rank).tree
        borrows = shards.index(rank).borrows
        shards.read_into(fitting(into, shards, rank))
        own = ((rank, run) for run in shards.index(rank).runs())
        shards.fetch([*own, *(_borrowed(shards, rank) if borrows else ())], neighbours, shown)
        with no_search():
            arrays = shards.all_arrays(rank)
        if borrows:
            tree = _Collected(shards, rank, arrays).with_borrowed(tree)
        with no_search():
            return cast(State, rebuild(tree, arrays))


def load_state(
    directory: Path,
    manifest: Manifest,
    rank: int,
    world_size: int,
    wanted: Wanted | None = None,
) -> State:
    """The state for a rank of a world of another size, or with its arrays cut in another way.

    What is no part comes as this rank saved it. A rank that was not there when it was saved gets
    what rank `rank % saved world size` saved: where ranks must differ, as in their random numbers,
    the caller has to see to that.

    Args:
        wanted: a `Box` for each part that this rank is to get, under its key, in mappings nested as
            those in the state; parts it does not name come back as None. Without it, they come as
            they were saved where the world is the same, and whole otherwise.

    Raises:
        PartsUnfit: the saved parts do not fill what is wanted exactly once.
        CheckpointDamaged, FormatUnknown: as for `load_shard`.
    """
    if wanted is None and world_size == manifest.world_size:
        return load_shard(directory, manifest, rank, world_size)
    return load_cut(directory, manifest, rank, None if wanted is None else dict(_boxes(wanted)))


def load_cut(
    directory: Path,
    manifest: Manifest,
    rank: int,
    boxes: Mapping[Key, Box] | None,
    tier: Path | None = None,
    neighbours: Neighbours | None = None,
    shown: Progress = unseen,
) -> State:
    """Like `load_state`, with the wanted boxes by their keys; None for all parts, whole."""
    source = rank % manifest.world_size
    with Shards(directory, manifest, tier) as shards, understood(shards, source):
        parts = parts_of({one: shards.index(one) for one in range(manifest.world_size)})
        nodes = array_paths(shards.index(source).tree)
        whole = (shards.holder(source, key, node) for key, node in nodes if key not in parts)
        shards.fetch([shards.place(*place) for place in whole], neighbours, shown)
        collected = _Collected(shards, source, [])
        tree = collected.with_parts(shards.index(source).tree, parts, boxes)
        state = cast(State, rebuild(tree, collected.arrays))
        for key in boxes.keys() - collected.placed if boxes else ():
            _put(state, key, collected.part(parts, key, boxes))
        return state


def _borrowed(shards: Shards, rank: int) -> Iterator[Place]:
    for key, node in array_paths(shards.index(rank).tree):
        if "written_by" in node:
            yield shards.place(*shards.holder(rank, key, node))


class _Collected:
    """Puts what lies in other shards among a rank's arrays, and says where in the tree it goes."""

    def __init__(self, shards: Shards, rank: int, arrays: list[object]) -> None:
        self.arrays = arrays
        self.placed: set[Key] = set()
        self._shards = shards
        self._rank = rank
        self._numbers: dict[object, int] = {}

    def with_borrowed(self, tree: Json) -> Json:
        return replaced(
            tree, lambda key, node: node if "array" in _node(node) else self._at(key, node)
        )

    def with_parts(self, tree: Json, parts: Parts, boxes: Mapping[Key, Box] | None) -> Json:
        def replace(key: Key, node: Json) -> Json:
            if key not in parts:
                return self._at(key, node)
            if boxes is not None and key not in boxes:
                return None
            self.placed.add(key)
            return self._number(("part", key), lambda: self.part(parts, key, boxes))

        return replaced(tree, replace)

    def part(self, parts: Parts, key: Key, boxes: Mapping[Key, Box] | None) -> object:
        wanted = boxes[key] if boxes is not None else None
        reason = misfit(parts[key], wanted) if key in parts else "no rank has saved a part of it"
        if reason:
            raise PartsUnfit("/".join(key), reason)
        return _assembled(self._shards, parts[key], wanted)

    def _at(self, key: Key, node: Json) -> Json:
        """An array that is no part, of this rank or of the one that has saved it for all."""
        rank, number = self._shards.holder(self._rank, key, _node(node))
        return self._number((rank, number), lambda: self._shards.array(rank, number))

    def _number(self, identity: object, load: Callable[[], object]) -> Json:
        if identity not in self._numbers:
            self._numbers[identity] = len(self.arrays)
            self.arrays.append(load())
        return {"array": self._numbers[identity]}


def _assembled(shards: Shards, parts: list[SavedPart], wanted: Box | None) -> object:
    """The wanted box, or the whole array, out of parts that are known to fill it."""
    form = parts[0].form
    whole = form.global_shape or ()
    box = wanted or Box((0,) * len(whole), whole)
    data = assembled_bytes(shards, parts, box)
    return content.rebuild(Form(form.kind, form.dtype, box.shape, data.nbytes), data)


def assembled_bytes(shards: Shards, parts: list[SavedPart], box: Box) -> Buffer:
    """The bytes of a box, in C order. Raises CheckpointDamaged."""
    width = max(one.form.size_bytes // max(1, one.box.volume) for one in parts)
    data = in_pages(box.volume * width)
    if box.volume:
        target = data.view(f"V{width}").reshape(box.shape)
        for part in parts:
            common = box.common(part.box)
            if common.volume:
                target[common.within(box)] = _rows(shards, part, common, width)
    return data


def _rows(
    shards: Shards, part: SavedPart, common: Box, width: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.void]]:
    """A box inside a part; of the part, only the rows of the first axis are read that matter."""
    shape = part.form.shape
    if not shape:
        return shards.bytes_of(part.rank, part.number, 0, width).view(f"V{width}").reshape(())
    rows, *others = common.within(part.box)
    row_bytes = part.form.size_bytes // shape[0]
    data = shards.bytes_of(part.rank, part.number, rows.start * row_bytes, rows.stop * row_bytes)
    return data.view(f"V{width}").reshape(-1, *shape[1:])[(slice(None), *others)]


def _boxes(wanted: Mapping[str, object], before: Key = ()) -> Iterator[tuple[Key, Box]]:
    for name, one in wanted.items():
        key = (*before, part_of_path(name))
        if isinstance(one, Box):
            yield key, one
        else:
            yield from _boxes(cast(Mapping[str, object], one), key)


def _put(state: State, key: Key, value: object) -> None:
    *before, last = key
    for name in before:
        state = cast(State, state.setdefault(name, {}))
    state[last] = value


def _node(node: Json) -> Mapping[str, int]:
    return cast(Mapping[str, int], node)


@contextmanager
def understood(shards: Shards, rank: int) -> Iterator[None]:
    """What is wrong with a sound index is damage too. Raises CheckpointDamaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        reason = f"it cannot be understood: {error}"
        raise shards[rank].damaged(Damage("index", None, reason)) from error
