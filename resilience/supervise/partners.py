"""Which nodes have which shards in their tiers, and what they are told to copy to each other.

Nothing here is waited for, but what a restart can use; and that not for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.tier_folder import tier_folder

from ..config import RunConfig
from ..decide.events import Event
from ..decide.storage_events import TierFailed
from ..messages import Message, number, text
from ..place import place_of
from .channel import AgentLine

BRING_LIMIT_S: Final = 60.0  # the directory has the same bytes, if more slowly
_LOOK_S: Final = 0.5


class Shard(NamedTuple):
    """One that a rank has saved."""

    step: int
    writer: str
    rank: int


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


class Partners:
    """Of one attempt. Without ``checkpoint.tiers.partner`` it does nothing.

    ``on_took(task, shard)`` hears that the node of this agent has a copy now.

    Attributes:
        chosen: what the next generation restores from.
    """

    def __init__(
        self,
        config: RunConfig,
        emit: Callable[[Event], None],
        on_took: Callable[[int, Shard], None],
    ) -> None:
        self._config = config
        self._emit = emit
        self._on_took = on_took
        self._on = config.checkpoint.partner and config.program == "ranks"
        self._generation = 0
        self._nodes: tuple[str, ...] = ()
        self._hosts: Mapping[str, str] = {}
        self._lines: Mapping[int, AgentLine] = {}
        self._origin: dict[Shard, str] = {}  # the node of the rank that saved it
        self._having: defaultdict[Shard, set[str]] = defaultdict(set)
        self._bringing: dict[Shard, tuple[str, str]] = {}  # from one node to another
        self._tasks: defaultdict[str, list[int]] = defaultdict(list)  # of each node
        self._partner: Mapping[str, str] = {}
        self._giver: Mapping[str, str] = {}  # whose copies a node takes
        self._changed = asyncio.Event()
        self._told: set[int] = set()  # ranks that are known to have no copy
        self.chosen: Manifest | None = None

    async def prepare(
        self,
        generation: int,
        nodes: tuple[str, ...],
        lines: Mapping[int, AgentLine],
        address_of: Callable[[str], str],
    ) -> None:
        """Before ranks start: open the depots, and bring shards to nodes that have lost theirs."""
        if not self._on:
            return
        self._generation, self._nodes, self._lines = generation, nodes, lines
        self._partner = partners_of(nodes, [one.nodes for one in self._config.components])
        self._giver = {partner: node for node, partner in self._partner.items()}
        self._tasks = defaultdict(list)
        if not self._giver:
            return
        for task, line in sorted(lines.items()):
            self._tasks[line.node].append(task)
        self._hosts = {node: address_of(node) for node in nodes}
        self._bringing = self._to_bring()
        share_bytes = self._config.tier_share_bytes(len(nodes))
        for line in lines.values():
            if line.leads and line.node in self._giver:
                tier = str(self._folder(line.node))
                line.send({"type": "depot", "tier": tier, "share_bytes": share_bytes})
        give_up_at_s = time.monotonic() + BRING_LIMIT_S
        while self._bringing and time.monotonic() < give_up_at_s and self._all_there():
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)
        slow = "the network, or one of the nodes, is too slow"
        reason = slow if self._all_there() else "agents of a node are lost"
        if self._bringing:  # ranks read that from the directory, and nothing is sent beside them
            for line in lines.values():
                line.send({"type": "bring_no_more"})
        for shard in list(self._bringing):
            self._not_brought(shard, reason)

    def saved(self, step: int, writer: Incarnation, rank: int) -> None:
        """A rank has a shard in the tier of its node."""
        if self._nodes:
            shard = Shard(step, writer.folder, rank)
            self._origin[shard] = self._node_of(rank)
            self._having[shard] = {self._node_of(rank)}

    def committed(self, step: int) -> None:
        """Older shards are for nobody."""
        for known in (self._origin, self._having):
            for past in [shard for shard in known if shard.step < step]:
                del known[past]

    def moved(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Of ranks that have restored from their tiers: those that had saved on another node."""
        if self.chosen is None or not self._nodes:
            return ()
        world_size = self.chosen.world_size  # another one than now, maybe
        shards = {rank: _shard(self.chosen, rank % world_size) for rank in ranks}
        here = {rank: (None, self._node_of(rank)) for rank in ranks}
        return tuple(rank for rank in ranks if self._origin.get(shards[rank]) not in here[rank])

    def drain(self, shard: Shard, task: int) -> None:
        """Let the node of this agent copy what a lost node has saved to the directory."""
        line = self._lines.get(task)
        line = line and self._spread(line.node, shard.rank)
        if line is not None:
            order = {"type": "drain", "generation": self._generation, **self._place(line, shard)}
            line.send({**order, "directory": str(self._config.checkpoint.directory)})

    # What agents say

    def heard(self, line: AgentLine, message: Message) -> None:
        """A word about depots or copies."""
        if message["type"] == "depot":
            self._depot(line.node, message)
            return
        shard = Shard(number(message, "step"), text(message, "writer"), number(message, "rank"))
        if message["type"] == "took":
            self._having[shard].add(line.node)
            self._told.discard(shard.rank)
            self._bringing.pop(shard, None)
            self._on_took(line.task, shard)
        elif shard in self._bringing:
            self._not_brought(shard, text(message, "reason"))
        elif Incarnation.parse(shard.writer).generation == self._generation:
            self._not_copied(shard.rank, text(message, "reason"))
        self._changed.set()

    def _depot(self, node: str, message: Message) -> None:
        if node not in self._giver:
            return  # one of an earlier generation
        givers = self._agents_of(self._giver[node])
        wanted = [shard for shard, (_, target) in self._bringing.items() if target == node]
        if message["port"] is None:
            for line in givers:
                self._not_copied(line.task, text(message, "reason"))
            for shard in wanted:
                self._not_brought(shard, text(message, "reason"))
            self._changed.set()
            return
        address = {"host": self._hosts[node], "port": number(message, "port")}
        for line in givers:
            line.send({"type": "partner", **address})
        for shard in wanted:
            holder, _ = self._bringing[shard]
            line_there = self._spread(holder, shard.rank)
            if line_there is None:
                self._not_brought(shard, "no agent is there")
            else:
                line_there.send({"type": "bring", **address, **self._place(line_there, shard)})

    def _not_copied(self, rank: int, reason: str) -> None:
        """Told once, until a copy is taken again: the next saves will have the same trouble."""
        if rank not in self._told:
            self._told.add(rank)
            partner = self._partner.get(self._node_of(rank))
            self._emit(self._failed(rank, reason, partner))

    def _not_brought(self, shard: Shard, reason: str) -> None:
        holder, _ = self._bringing.pop(shard)
        reason = f"its shard of step {shard.step} is not brought from {holder}: {reason}"
        self._emit(self._failed(shard.rank, reason, None))

    def _failed(self, rank: int, reason: str, partner: str | None) -> TierFailed:
        return TierFailed(
            generation=self._generation,
            rank=rank,
            node=self._node_of(rank),
            reason=reason,
            partner=partner,
        )

    # Who has what

    def _to_bring(self) -> dict[Shard, tuple[str, str]]:
        """What ranks of the same world will restore, and other nodes have."""
        for having in self._having.values():
            having.intersection_update(self._nodes)  # the tier of a node goes when its agents do
        chosen = self.chosen
        if chosen is None or chosen.world_size != self._config.ranks_on(len(self._nodes)):
            return {}
        found = {}
        for rank in range(chosen.world_size):
            shard, target = _shard(chosen, rank), self._node_of(rank)
            having = self._having.get(shard, set())
            if having and target not in having:
                found[shard] = min(having), target
        return found

    def _all_there(self) -> bool:
        """Whether all nodes that something is brought from or to still have agents."""
        there = {line.node for line in self._lines.values()}
        return all(there.issuperset(pair) for pair in self._bringing.values())

    def _spread(self, node: str, rank: int) -> AgentLine | None:
        """An agent of a node, another one for each of its ranks."""
        there = self._agents_of(node)
        return there[rank % len(there)] if there else None

    def _agents_of(self, node: str) -> list[AgentLine]:
        """Those that have not been lost since."""
        return [self._lines[task] for task in self._tasks.get(node, ()) if task in self._lines]

    def _place(self, line: AgentLine, shard: Shard) -> dict[str, object]:
        return {"tier": str(self._folder(line.node)), **shard._asdict()}

    def _folder(self, node: str) -> Path:
        tier = self._config.checkpoint.tier
        assert tier is not None  # the spec has a partner below tiers only
        return tier_folder(Path(tier), self._config.run_id, node)

    def _node_of(self, rank: int) -> str:
        return self._nodes[place_of(self._config, rank).node]


def _shard(manifest: Manifest, rank: int) -> Shard:
    return Shard(manifest.step, manifest.receipts[rank].incarnation.folder, rank)
