"""Signals that the agent of a batch script was sent itself.

With proctrack/linuxproc Slurm signals every process of a job: what has come here, the script has.
"""

from __future__ import annotations

import time
from collections import defaultdict
from types import FrameType
from typing import Final

_RECENT_S: Final = 10.0  # a supervisor that gets no turn hears of it late


class Echoes:
    """``note`` is their handler. It has run before anything that was sent later is read."""

    def __init__(self) -> None:
        self._came: dict[int, list[float]] = defaultdict(list)

    def note(self, number: int, _frame: FrameType | None) -> None:
        self._came[number].append(time.monotonic())

    def take(self, number: int) -> bool:
        """Whether there is a recent one, which is then taken: one answers for one."""
        since = time.monotonic() - _RECENT_S
        recent = self._came[number] = [came for came in self._came[number] if came > since]
        if not recent:
            return False
        recent.pop(0)
        return True
