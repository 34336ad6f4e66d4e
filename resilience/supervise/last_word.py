"""How a run ended is written also when its disk is full: room is kept for it from the start."""

from __future__ import annotations

import logging
import os
import time
from typing import Final

from ..decide.actions import Finish, Outcome
from ..run_folder import RunFolder
from .standing import write_verdict

_log: Final = logging.getLogger(__name__)
_ROOM_BYTES: Final = 64 * 1024
_PATIENCE_S: Final = 300.0
_PAUSE_S: Final = 5.0


def keep_room(folder: RunFolder) -> None:
    """Takes room on the disk that a verdict and the last lines of the journal can have."""
    try:
        if not folder.reserve.exists():
            folder.reserve.write_bytes(os.urandom(_ROOM_BYTES))  # which no file system can pack
    except OSError as error:
        _log.warning("no room is kept for the end of the run: %s", error)


def give_room(folder: RunFolder) -> bool:
    """Gives the room back, for who writes at once; False when there is none any more."""
    try:
        folder.reserve.unlink()
    except OSError:
        return False
    return True


def leave_verdict(folder: RunFolder, order: Finish, *, patience_s: float = _PATIENCE_S) -> None:
    """Writes the verdict of a run that will not go on; what is in the way may pass."""
    if order.outcome in (Outcome.RESTARTING, Outcome.INTERRUPTED):
        return
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            write_verdict(folder, order, time.time())
            folder.reserve.unlink(missing_ok=True)
            return
        except OSError as error:
            if give_room(folder):
                continue
            if time.monotonic() > give_up_at or _is_removed(folder):
                _log.error("how the run ended cannot be written: %s; it was %s", error, order)
                return
            _log.warning("the verdict cannot be written for now: %s", error)
            time.sleep(_PAUSE_S)


def _is_removed(folder: RunFolder) -> bool:
    """Whether there is no such folder; one that cannot be read may come back."""
    try:
        folder.root.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
