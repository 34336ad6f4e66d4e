"""Nothing of a step or an attempt stays: processes whose parents end come to us (prctl(2))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_REAP_S: Final = 2.0
_REAP_POLL_S: Final = 0.01


def adopt_orphans() -> frozenset[int]:
    """From now on descendants whose parent ends become children of this process; those that are
    its children already, as of the shell that became it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return frozenset(children())


def children() -> list[int]:
    """The processes that are children of this one's main thread, their own or adopted."""
    listing = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listing.split()]


def kill_adopted(spared: frozenset[int]) -> None:
    """Kills what is left, until nothing is: each kill may hand us that process's children.

    One that waits for a dead file system cannot be killed, and is left to its fate.
    """
    stuck: set[int] = set()
    while left := [pid for pid in children() if pid not in spared | stuck]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        give_up = time.monotonic() + _REAP_S
        stuck.update(pid for pid in left if not _reaped(pid, give_up))


def _reaped(pid: int, give_up: float) -> bool:
    try:
        while os.waitpid(pid, os.WNOHANG)[0] != pid:
            if time.monotonic() > give_up:
                return False
            time.sleep(_REAP_POLL_S)
    except ChildProcessError:
        pass  # somebody else has waited for it
    return True
