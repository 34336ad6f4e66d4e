"""Which nodes have which shards in their tiers, and which have to have them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relight.storage.manifest import Manifest


class SavedShard(NamedTuple):
    """One that a rank has saved."""

    step: int
    writer: str
    rank: int


class Route(NamedTuple):
    """From one node to another."""

    holder: str
    target: str


def partners_of(nodes: Sequence[str], sizes: Sequence[int] = ()) -> dict[str, str]:
    """For each node the one that has copies of what it saves: half of the list away.

    Slurm gives nodes in the order of its topology, or of their names: neighbours share a chassis,
    power and a switch, and are lost together. ``sizes`` are those of components, whose nodes are of
    different kinds: a partner is of the same one, and a node alone in its own has none.
    """
    found: dict[str, str] = {}
    begin = 0
    for size in sizes or (len(nodes),):
        alike = nodes[begin : begin + size]
        half = size // 2
        if half:
            found |= dict(zip(alike, (*alike[half:], *alike[:half]), strict=True))
        begin += size
    return found


def shards_of(manifest: Manifest) -> list[SavedShard]:
    """What a checkpoint consists of, by rank."""
    return [
        SavedShard(manifest.step, receipt.incarnation.folder, rank)
        for rank, receipt in enumerate(manifest.receipts)
    ]


class TierCopies:
    """What agents have told of one attempt."""

    def __init__(self) -> None:
        self._origin: dict[SavedShard, str] = {}  # the node of the rank that saved it
        self._having: defaultdict[SavedShard, set[str]] = defaultdict(set)

    def saved(self, shard: SavedShard, node: str) -> None:
        self._origin[shard] = node
        self._having[shard] = {node}

    def took(self, shard: SavedShard, node: str) -> None:
        self._having[shard].add(node)

    def committed(self, step: int) -> None:
        """Older shards are for nobody."""
        for known in (self._origin, self._having):
            for past in [shard for shard in known if shard.step < step]:
                del known[past]

    def is_from(self, shard: SavedShard, node: str) -> bool:
        """False when it is known to have been saved on another node."""
        return self._origin.get(shard, node) == node

    def to_bring(
        self, shards: Sequence[SavedShard], nodes: Sequence[str], node_of: Mapping[int, str]
    ) -> dict[SavedShard, Route]:
        """Of the shards that ranks will read those which only other nodes have.

        The tier of a node goes when its agents do: of others than ``nodes`` nothing is left.
        """
        for having in self._having.values():
            having.intersection_update(nodes)
        found = {}
        for shard in shards:
            having, target = self._having.get(shard, set()), node_of[shard.rank]
            if having and target not in having:
                found[shard] = Route(min(having), target)
        return found
