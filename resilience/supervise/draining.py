"""Which saves are on their way from the tiers of nodes to the checkpoint directory."""

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

    @property
    def under_way(self) -> bool:
        """Whether a save may yet become a checkpoint without its ranks."""
        return any(
            ranks == self._world and (rest := ranks - self._durable[step]) and not rest & self._lost
            for step, ranks in self._saved.items()
        )

    def _forget_until(self, step: int) -> None:
        """Nobody has to wait for an older save than one that is there."""
        for steps in (self._saved, self._durable):
            for past in [one for one in steps if one <= step]:
                del steps[past]

    async def settle(self, left_s: Callable[[], float]) -> None:
        """Wait until no save is under way, but not for ever: the end may come nearer meanwhile."""
        give_up_at_s = time.monotonic() + SETTLE_LIMIT_S
        while self.under_way:
            limit_s = min(left_s(), give_up_at_s - time.monotonic(), _LOOK_S)
            if limit_s <= 0:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), limit_s)
