"""Whether a program writes and computes, for those that say nothing themselves.

Standard library only: the rank agent looks with it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

LOOK_S: Final = 5.0
_BUSY: Final = 0.01  # of one CPU, between two looks
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Activity:
    """One program, by its log and its process; looked at every ``LOOK_S`` or so."""

    def __init__(self, pid: int, log: Path) -> None:
        self._pid = pid
        self._log = log
        self._size_bytes = -1
        self._cpu_s = 0.0
        self._looked = self._wrote = self._computed = time.monotonic()

    def due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked >= LOOK_S

    def look(self) -> dict[str, object]:
        """Seconds since the program has last written, and used a CPU."""
        now = time.monotonic()
        size_bytes = self._log.stat().st_size if self._log.exists() else 0
        if size_bytes != self._size_bytes:
            self._size_bytes, self._wrote = size_bytes, now
        cpu_s = sum(map(cpu_of, family(self._pid)))
        # The family may have become smaller: what an ended child has used is its parent's then.
        if cpu_s < self._cpu_s or cpu_s - self._cpu_s > _BUSY * (now - self._looked):
            self._computed = now
        self._cpu_s, self._looked = cpu_s, now
        return {"type": "active", "output_s": now - self._wrote, "idle_s": now - self._computed}


def family(pid: int) -> list[int]:
    """A process and all that it has started (children of proc(5)); gone ones are left out."""
    try:
        listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [pid, *(each for child in listing.split() for each in family(int(child)))]


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its ended children (fields 14 to 17 of stat, proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S
