"""Waiting for room in the run folder, for what an attempt cannot do without."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

_log: Final = logging.getLogger(__name__)
Result = TypeVar("Result")
_LIMIT_S: Final = 900.0  # as long as for a file system that is away
_PAUSE_S: Final = 5.0
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class _Patience:
    def __init__(self) -> None:
        self._give_up_at = time.monotonic() + _LIMIT_S
        self._told = False

    def bear(self, error: OSError) -> None:
        """Raises it when that is no lack of room, or lasts too long."""
        if error.errno not in _FULL or time.monotonic() >= self._give_up_at:
            raise error
        if not self._told:
            _log.warning("waiting for room in the run folder: %s", error)
        self._told = True


def once_there_is_room(write: Callable[[], Result]) -> Result:
    """What ``write`` gives once a full disk, or a quota, lets it.

    Raises:
        OSError: there was no room in that time, or another refusal.
    """
    patience = _Patience()
    while True:
        try:
            return write()
        except OSError as error:
            patience.bear(error)
        time.sleep(_PAUSE_S)


async def until_there_is_room(write: Callable[[], Result]) -> Result:
    """Likewise in a loop: whoever waits can be cancelled."""
    patience = _Patience()
    while True:
        try:
            return await asyncio.to_thread(write)
        except OSError as error:
            patience.bear(error)
        await asyncio.sleep(_PAUSE_S)
