"""The state of a rank when the world, or the way its arrays are cut, may have changed since.

What is in parts is cut anew. What is the same on all ranks is everybody's. What each rank has for
itself stays with its rank, and all else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .boxes import Box
from .common import differences
from .errors import PartsUnfit, RanksDiffer
from .keys import Path as Key
from .keys import array_paths
from .manifest import Manifest
from .needs import Needs, Piece
from .node_reads import Neighbours
from .parts import Parts, parts_of
from .progress import Progress, unseen
from .restore import State, load_cut, load_shard
from .shards import Shards


@dataclass(frozen=True, slots=True)
class Loaded:
    """`missing`: what each rank has for itself, where this one was not there when it was saved."""

    state: State
    missing: frozenset[Key] = frozenset()


def load_for(
    directory: Path,
    manifest: Manifest,
    rank: int,
    world_size: int,
    needs: Needs,
    tier: Path | None = None,
    neighbours: Neighbours | None = None,
    shown: Progress = unseen,
) -> Loaded:
    """A rank's state, whatever number of ranks saved it. Tensors come back on the CPU.

    Shards that are in a node's `tier` too are read there, and what `neighbours` want too is read by
    one of them. `needs.into` is written over only where the rank gets what it has saved itself.

    Raises:
        RanksDiffer: ranks have saved different values of a thing, and nothing says whose counts.
        PartsUnfit: the saved parts do not fill what is needed exactly once.
        CheckpointDamaged, FormatUnknown: as for `load_shard`.
    """

    def as_saved() -> Loaded:
        into = needs.into
        return Loaded(load_shard(directory, manifest, rank, None, tier, neighbours, shown, into))

    same_world = world_size == manifest.world_size
    if same_world and not needs.pieces:
        return as_saved()
    with Shards(directory, manifest, tier) as shards:
        if same_world and _as_saved(shards, rank, needs):
            return as_saved()
        indexes = {one: shards.index(one) for one in range(manifest.world_size)}
    _require_pieces(parts_of(indexes), needs)
    apart = set() if same_world else needs.own | _set_apart(directory, manifest, world_size, needs)
    boxes = {key: piece.box for key, piece in needs.pieces.items()}
    state = load_cut(directory, manifest, rank, boxes, tier, neighbours, shown)
    return Loaded(state, frozenset(apart if rank >= manifest.world_size else ()))


def _as_saved(shards: Shards, rank: int, needs: Needs) -> bool:
    """Whether the pieces that this rank needs are those that it saved; others stay as they were."""
    found = {}
    for key, node in array_paths(shards.index(rank).tree):
        form = shards.form(*shards.holder(rank, key, node))
        if form.global_shape is not None:
            found[key] = Piece(Box(form.offset, form.shape), form.global_shape)
    return all(found.get(key) == piece for key, piece in needs.pieces.items())


def _require_pieces(parts: Parts, needs: Needs) -> None:
    for key, saved in parts.items():
        if key not in needs.pieces:
            raise PartsUnfit("/".join(key), "it was saved in parts, and none of them is asked for")
        whole, wanted = saved[0].form.global_shape, needs.pieces[key].whole
        if whole != wanted:
            reason = f"an array of {whole} was saved, and a part of one of {wanted} is asked for"
            raise PartsUnfit("/".join(key), reason)


def _set_apart(directory: Path, manifest: Manifest, world_size: int, needs: Needs) -> set[Key]:
    """What is known to be of one rank each, and indeed differs. Raises RanksDiffer for the rest."""
    found = set()
    for key, rank in differences(directory, manifest):
        beginnings = {key[:length] for length in range(len(key) + 1)}
        if beginnings & needs.any_rank:
            continue
        own = beginnings & (needs.per_rank | needs.own)
        if not own:
            raise RanksDiffer("/".join(key), (0, rank), manifest.world_size, world_size)
        found |= own
    return found
