"""A check ends, with all that it has started, when the process that wants its answer does."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# One that nobody else sends: a step is told to end by SIGTERM, and a look is not cut short by that.
_SIGNAL: Final = signal.SIGRTMIN
_libc: Final = ctypes.CDLL(None)  # before a fork: the child is to begin at once


def end_with(parent: int) -> None:
    """In a child that leads its process group: end the group once ``parent`` is gone."""
    group = os.getpid()
    signal.signal(_SIGNAL, lambda *_: os.killpg(group, signal.SIGKILL))
    _libc.prctl(_PR_SET_PDEATHSIG, int(_SIGNAL), 0, 0, 0)
    if os.getppid() != parent:
        os.killpg(group, signal.SIGKILL)
