"""A look at a file system that may not answer: in a thread, and none while the last one hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_log: Final = logging.getLogger(__name__)
Seen = TypeVar("Seen")


class Look(Generic[Seen]):
    """Asks once until there is an answer; nobody waits longer than he wants to."""

    def __init__(self, call: Callable[[], Seen]) -> None:
        self._call = call
        self._asking: asyncio.Task[Seen] | None = None

    async def now(self, limit_s: float) -> Seen | None:
        """What is seen; None when that is not known for now."""
        asking = self._asking or asyncio.create_task(asyncio.to_thread(self._call))
        self._asking = asking
        if not (await asyncio.wait({asking}, timeout=limit_s))[0]:
            return None
        if self._asking is asking:  # another may have had this answer, and asked again
            self._asking = None
        try:
            return asking.result()
        except OSError as error:
            _log.warning("not known for now: %s", error)
            return None
