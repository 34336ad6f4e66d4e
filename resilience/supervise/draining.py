"""Which saves are on their way from the tiers of nodes to the checkpoint directory.

The shard of a rank whose node is lost may still come from a partner node, which has a copy of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

# A restart that waits for the save of a moment ago loses fewer steps than it takes; not for ever.
SETTLE_LIMIT_S: Final = 300.0
_LOOK_S: Final = 1.0


class Draining:
    """The saves of one generation. A save is under way when all ranks have it, some in tiers."""

    def __init__(self, world_size: int) -> None:
        self._world = frozenset(range(world_size))
        self._saved: defaultdict[int, set[int]] = defaultdict(set)
        self._durable: defaultdict[int, set[int]] = defaultdict(set)
        self._lost: set[int] = set()
        self._copies: dict[tuple[int, int], int] = {}  # of a step and rank: whose agent has one
        self._rescued: defaultdict[int, set[int]] = defaultdict(set)
        self._changed = asyncio.Event()

    def saved(self, step: int, rank: int, *, durable: bool) -> None:
        """A rank's shard is there, in the checkpoint directory if ``durable``."""
        self._saved[step].add(rank)
        if durable:
            self._durable[step].add(rank)
        if self._durable[step] == self._world:
            self._forget_until(step)
        self._changed.set()

    def failed(self, step: int) -> None:
        """There will be no checkpoint of this step."""
        for steps in (self._saved, self._durable):
            steps.pop(step, None)
        self._changed.set()

    def abandon(self) -> None:
        """No save of these ranks will be committed any more."""
        self._saved.clear()
        self._durable.clear()
        self._changed.set()

    def lost(self, rank: int) -> None:
        """Nothing more is heard of a rank's agent, which copies its shards."""
        self._lost.add(rank)
        self._changed.set()

    def copied(self, step: int, rank: int, by: int) -> None:
        """The agent of rank ``by`` has a copy of what this rank has saved."""
        self._copies[step, rank] = by
        self._changed.set()

    @property
    def under_way(self) -> bool:
        """Whether a save may yet become a checkpoint without its ranks."""
        return any(
            (rest := ranks - self._durable[step]) and all(self._comes(step, rank) for rank in rest)
            for step, ranks in self._saved.items()
            if ranks == self._world
        )

    def rescue(self) -> list[tuple[int, int, int]]:
        """Step, rank, by: the copies that have to take the place of what is lost, each once."""
        if not self._lost:
            return []
        found = [
            (step, rank, self._copies[step, rank])
            for step, ranks in self._saved.items()
            if ranks == self._world
            for rank in sorted((ranks & self._lost) - self._durable[step] - self._rescued[step])
            if self._comes(step, rank)
        ]
        for step, rank, _ in found:
            self._rescued[step].add(rank)
        return found

    def rescued(self, step: int) -> tuple[int, ...]:
        """The ranks whose shards of a step came from copies."""
        return tuple(sorted(self._rescued.get(step, ())))

    def _comes(self, step: int, rank: int) -> bool:
        """Whether somebody is alive who copies a shard."""
        return rank not in self._lost or self._copies.get((step, rank), rank) not in self._lost

    def _forget_until(self, step: int) -> None:
        """Nobody has to wait for an older save than one that is there."""
        for steps in (self._saved, self._durable):
            for past in [one for one in steps if one <= step]:
                del steps[past]
        for key in [one for one in self._copies if one[0] < step]:
            del self._copies[key]
        for past in [one for one in self._rescued if one < step]:
            del self._rescued[past]

    async def settle(self, left_s: Callable[[], float]) -> None:
        """Wait until no save is under way, but not for ever: the end may come nearer meanwhile."""
        give_up_at_s = time.monotonic() + SETTLE_LIMIT_S
        while self.under_way:
            limit_s = min(left_s(), give_up_at_s - time.monotonic(), _LOOK_S)
            if limit_s <= 0:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._changed.wait()
