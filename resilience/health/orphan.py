"""A check ends, with all that it has started, when the process that wants its answer does.

What it starts may leave its process group and its parent, as daemons do (man 2 setsid). It cannot
leave the check, which adopts it (man 2 prctl, PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Final

from .processes import processes

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# One that nobody else sends: a step is told to end by SIGTERM, and a look is not cut short by that.
_SIGNAL: Final = signal.SIGRTMIN
_KILLING_S: Final = 1.0  # what forks on and on is left behind then
_libc: Final = ctypes.CDLL(None)  # before a fork: the child is to begin at once


def end_with(parent: int) -> None:
    """In a child that leads its process group: end it all once ``parent`` is gone."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(_SIGNAL, lambda *_: _end_all())
    _libc.prctl(_PR_SET_PDEATHSIG, int(_SIGNAL), 0, 0, 0)
    if os.getppid() != parent:
        _end_all()


def end_descendants(pid: int) -> None:
    """Kill all that a process has started, and what that has started; it must be alive.

    What starts others faster than they can be killed is left behind after ``_KILLING_S``.
    """
    told: set[int] = set()
    give_up = time.monotonic() + _KILLING_S
    while fresh := _descendants(pid) - told:  # one may have started another meanwhile
        for one in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        told |= fresh
        if time.monotonic() > give_up:
            return


def has_children() -> bool:
    """Whether anything lives that this process has started, or adopted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return False
    return True


def _end_all() -> None:
    end_descendants(os.getpid())
    os.killpg(0, signal.SIGKILL)


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for one in processes(Path("/")):
        children.setdefault(one.parent, []).append(one.pid)
    found, fresh = set[int](), [pid]
    while fresh:
        fresh += (more := children.pop(fresh.pop(), []))
        found.update(more)
    return found
