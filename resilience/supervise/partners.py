"""What nodes are told to copy to each other, and what is told of it.

Nothing here is waited for, but what a restart can use; and that not for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.tier_folder import tier_folder

from ..config import RunConfig
from ..decide.events import Event
from ..decide.storage_events import TierFailed
from ..messages import Message, number, text
from ..place import place_of
from .channel import AgentLine
from .node_agents import NodeAgents
from .tier_copies import Route, SavedShard, TierCopies, partners_of, shards_of

BRING_LIMIT_S: Final = 60.0  # the directory has the same bytes, if more slowly
_LOOK_S: Final = 0.5


class Partners:
    """Of one attempt. Without ``checkpoint.tiers.partner`` it does nothing.

    ``on_took(rank, shard)`` hears that the node of this agent has a copy now.

    Attributes:
        chosen: what the next generation restores from.
    """

    def __init__(
        self,
        config: RunConfig,
        emit: Callable[[Event], None],
        on_took: Callable[[int, SavedShard], None],
    ) -> None:
        self._config = config
        self._emit = emit
        self._on_took = on_took
        self._on = config.checkpoint.partner and config.program == "ranks"
        self._generation = 0
        self._nodes: tuple[str, ...] = ()
        self._hosts: Mapping[str, str] = {}
        self._agents = NodeAgents({})
        self._copies = TierCopies()
        self._bringing: dict[SavedShard, Route] = {}
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
        self._generation, self._nodes = generation, nodes
        self._partner = partners_of(nodes, [one.nodes for one in self._config.components])
        self._giver = {partner: node for node, partner in self._partner.items()}
        self._agents = NodeAgents(lines)
        if self._bringing:  # for a start that was ended
            self._call_off()
        if not self._giver:
            return
        self._hosts = {node: address_of(node) for node in nodes}
        self._bringing = self._to_bring()
        share_bytes = self._config.tier_share_bytes(len(nodes))
        for line in self._agents.all():
            if line.leads and line.node in self._giver:
                tier = str(self._folder(line.node))
                line.send({"type": "depot", "tier": tier, "share_bytes": share_bytes})
        give_up_at_s = time.monotonic() + BRING_LIMIT_S
        while self._bringing and time.monotonic() < give_up_at_s and self._all_there():
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
        self._bring_no_more()

    def saved(self, step: int, writer: Incarnation, rank: int) -> None:
        """A rank has a shard in the tier of its node."""
        if self._nodes:
            self._copies.saved(SavedShard(step, writer.folder, rank), self._node_of(rank))

    def committed(self, step: int) -> None:
        """Older shards are for nobody."""
        self._copies.committed(step)

    def moved(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Of ranks that have restored from their tiers: those that had saved on another node."""
        if self.chosen is None or not self._nodes:
            return ()
        shards = shards_of(self.chosen)  # of another number of ranks than now, maybe
        shard = {rank: shards[rank % len(shards)] for rank in ranks}
        return tuple(
            rank for rank in ranks if not self._copies.is_from(shard[rank], self._node_of(rank))
        )

    def drain(self, shard: SavedShard, task: int) -> None:
        """Let the node of this agent copy what a lost node has saved to the directory."""
        node = self._agents.node_of(task)
        line = self._agents.one_of(node, shard.rank) if node is not None else None
        if line is not None:
            order = {"type": "drain", "generation": self._generation, **self._place(line, shard)}
            line.send({**order, "directory": str(self._config.checkpoint.directory)})

    # What agents say

    def heard(self, line: AgentLine, message: Message) -> None:
        """A word about depots or copies."""
        if message["type"] == "depot":
            self._depot(line.node, message)
            return
        shard = SavedShard(
            number(message, "step"), text(message, "writer"), number(message, "rank")
        )
        if message["type"] == "took":
            self._copies.took(shard, line.node)
            self._told.discard(shard.rank)
            self._bringing.pop(shard, None)
            self._on_took(line.rank, shard)
        elif shard in self._bringing:
            self._not_brought(shard, text(message, "reason"))
        elif Incarnation.parse(shard.writer).generation == self._generation:
            self._not_copied(shard.rank, text(message, "reason"))
        self._changed.set()

    def _depot(self, node: str, message: Message) -> None:
        if node not in self._giver:
            return  # one of an earlier generation
        givers = self._agents.of(self._giver[node])
        wanted = [shard for shard, route in self._bringing.items() if route.target == node]
        if message["port"] is None:
            for line in givers:
                self._not_copied(line.rank, text(message, "reason"))
            for shard in wanted:
                self._not_brought(shard, text(message, "reason"))
            self._changed.set()
            return
        address = {"host": self._hosts[node], "port": number(message, "port")}
        for line in givers:
            line.send({"type": "partner", **address})
        for shard in wanted:
            line_there = self._agents.one_of(self._bringing[shard].holder, shard.rank)
            if line_there is None:
                self._not_brought(shard, "no agent is there")
            else:
                line_there.send({"type": "bring", **address, **self._place(line_there, shard)})

    # What is told

    def _not_copied(self, rank: int, reason: str) -> None:
        """Told once, until a copy is taken again: the next saves will have the same trouble."""
        if rank not in self._told:
            self._told.add(rank)
            partner = self._partner.get(self._node_of(rank))
            self._emit(self._failed(rank, reason, partner))

    def _not_brought(self, shard: SavedShard, reason: str) -> None:
        holder = self._bringing.pop(shard).holder
        reason = f"its shard of step {shard.step} is not brought from {holder}: {reason}"
        self._emit(self._failed(shard.rank, reason, None))

    def _bring_no_more(self) -> None:
        """Ranks read from the directory what has not come, and nothing is sent beside them."""
        slow = "the network, or one of the nodes, is too slow"
        reason = slow if self._all_there() else "agents of a node are lost"
        if self._bringing:
            self._call_off()
        for shard in list(self._bringing):
            self._not_brought(shard, reason)

    def _call_off(self) -> None:
        for line in self._agents.all():
            line.send({"type": "bring_no_more"})

    def _failed(self, rank: int, reason: str, partner: str | None) -> TierFailed:
        return TierFailed(
            generation=self._generation,
            rank=rank,
            node=self._node_of(rank),
            reason=reason,
            partner=partner,
        )

    # Where things are

    def _to_bring(self) -> dict[SavedShard, Route]:
        """For ranks of the same world only: others read parts of many shards."""
        world_size = self._config.ranks_on(len(self._nodes))
        chosen = self.chosen
        same = chosen is not None and chosen.world_size == world_size
        shards = shards_of(chosen) if chosen is not None and same else []
        node_of = {rank: self._node_of(rank) for rank in range(world_size)}
        return self._copies.to_bring(shards, self._nodes, node_of)

    def _all_there(self) -> bool:
        """Whether all nodes that something is brought from or to still have agents."""
        return all(self._agents.of(node) for route in self._bringing.values() for node in route)

    def _place(self, line: AgentLine, shard: SavedShard) -> dict[str, object]:
        return {"tier": str(self._folder(line.node)), **shard._asdict()}

    def _folder(self, node: str) -> Path:
        tier = self._config.checkpoint.tier
        assert tier is not None  # the spec has a partner below tiers only
        return tier_folder(Path(tier), self._config.run_id, node)

    def _node_of(self, rank: int) -> str:
        return self._nodes[place_of(self._config, rank).node]
