"""Nothing of a step or an attempt stays: processes whose parents end come to us (prctl(2))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


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
    """Kills what is left, until nothing is: each kill may hand us that process's children."""
    while left := [pid for pid in children() if pid not in spared]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
