"""Whether a program writes and computes, for those that say nothing themselves.

Standard library only: the rank agent looks with it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from .rank_log import RankLog

LOOK_S: Final = 5.0
_BUSY: Final = 0.01  # of one CPU, between two looks
_PAUSED_S: Final = 4 * LOOK_S  # between two looks: the job was suspended, or the host slept
_ANSWER_S: Final = 0.05  # for a size; the agent must not miss a beat for it
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Activity:
    """One program, by its log and its process; looked at every ``LOOK_S`` or so.

    Without a process somebody else looks at its use of a CPU.
    """

    def __init__(self, pid: int | None, log: Path, output: RankLog | None = None) -> None:
        """``output`` is what this agent takes of it; where another does, only the log tells."""
        self._pid = pid
        self._log = _Log(log)
        self._output = output
        self._size_bytes = -1
        self._cpu_s = 0.0
        self._looked = self._wrote = self._computed = time.monotonic()

    def due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked >= LOOK_S

    def look(self) -> dict[str, object]:
        """Seconds since the program has last written, and used a CPU.

        While the size of the log is not known no silence is counted.
        """
        now = time.monotonic()
        if (paused_s := now - self._looked) > _PAUSED_S:
            self._wrote, self._computed = self._wrote + paused_s, self._computed + paused_s
            self._looked = now
        size_bytes = self._log.size_bytes() if self._output is None else self._output.taken_bytes
        if size_bytes is None:
            self._wrote += now - self._looked
        elif size_bytes != self._size_bytes:
            self._size_bytes, self._wrote = size_bytes, now
        cpu_s = 0.0 if self._pid is None else sum(map(cpu_of, family(self._pid)))
        # The family may have become smaller: what an ended child has used is its parent's then.
        nobody = self._pid is None
        if nobody or cpu_s < self._cpu_s or cpu_s - self._cpu_s > _BUSY * (now - self._looked):
            self._computed = now
        self._cpu_s, self._looked = cpu_s, now
        return {"type": "active", "output_s": now - self._wrote, "idle_s": now - self._computed}


class _Log:
    """A file on a file system of others, which may not answer for long: a thread asks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asking: threading.Thread | None = None
        self._size_bytes: int | None = None

    def size_bytes(self) -> int | None:
        """None where it is not known; while one question hangs no other one is asked."""
        if self._asking is None or not self._asking.is_alive():
            self._size_bytes = None
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        self._asking.join(_ANSWER_S)
        return self._size_bytes

    def _ask(self) -> None:
        try:
            self._size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            self._size_bytes = 0  # nothing is written yet
        except OSError:
            return  # stale, or away: not known


def family(pid: int) -> list[int]:
    """A process and all that it has started (children of proc(5)); gone ones are left out."""
    try:
        started = children_of(pid)
    except OSError:
        return []
    return [pid, *(each for child in started for each in family(child))]


def children_of(pid: int) -> list[int]:
    """What a process has started, by its first thread. Raises OSError when it is gone."""
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listing.split()]


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its ended children (fields 14 to 17 of stat, proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S
