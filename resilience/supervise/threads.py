"""The threads of the event loop: what hangs in one does not hold the supervisor up."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_log: Final = logging.getLogger(__name__)
_MOST: Final = 32  # asyncio's own number is that of few CPUs: calls that hang would take all places
_PATIENCE_S: Final = 300.0  # as asyncio has from Python 3.12 on; before it waits for ever


class Threads(ThreadPoolExecutor):
    """A loop's default executor, which ends though a file system that is away holds its calls.

    Who uses it has to leave the process by ``os._exit``: Python waits for all threads.
    """

    def __init__(self) -> None:
        super().__init__(_MOST, "relight")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What has begun is waited for, but not for ever."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        give_up_at = time.monotonic() + _PATIENCE_S
        for thread in self._threads if wait else ():
            thread.join(max(0.0, give_up_at - time.monotonic()))
            if thread.is_alive():
                _log.warning("a call to a file system hangs, and is left: %s", thread.name)
