"""Old checkpoints are deleted by one call at a time; of those that wait the newest counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .commits import Claim


class Tidying:
    """``tidy`` runs in a worker thread; what is asked for meanwhile is done once after it."""

    def __init__(self, tidy: Callable[[Claim], None]) -> None:
        self._tidy = tidy
        self._asked: Claim | None = None
        self._task: asyncio.Task[None] | None = None

    def ask(self, claim: Claim) -> None:
        """Nobody waits for it: to delete may take longer than what is left of an allocation."""
        self._asked = claim
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._all())

    async def _all(self) -> None:
        while (claim := self._asked) is not None:
            self._asked = None
            await asyncio.to_thread(self._tidy, claim)
