"""The agent's question whether GPUs have given back what its last program had of their memory.

Standard library only; NVML is loaded by a process of its own, and on nodes with a driver only.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from ..health.gpu.reading import DRIVERS

_PROGRAM: Final = "relight.resilience.health.gpu.given_back"
_START_S: Final = 5.0  # for Python and the driver's library to begin
_LONGEST: Final = 1000  # characters of an answer, which a pipe holds


def has_gpus(root: Path = Path("/")) -> bool:
    """Whether a driver of GPUs is loaded on this node."""
    return any((root / driver).exists() for driver in DRIVERS)


class GpuMemory:
    """One such question, for ``limit_s`` at most; ``gpus`` is how many the run has on a node.

    ``pids`` holds the process while there is one.
    """

    def __init__(self, limit_s: float, gpus: int, pids: set[int]) -> None:
        self._limit_s = limit_s + _START_S
        self._give_up_at = time.monotonic() + self._limit_s
        self._pids = pids
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, f"{limit_s:g}", str(gpus)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        pids.add(self._process.pid)

    def look(self) -> str | None:
        """What is held, "" when nothing is or nobody can tell; None while that is not known."""
        ended = self._process.poll() is not None
        if not ended and time.monotonic() < self._give_up_at:
            return None
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            if ended:
                self._pids.discard(self._process.pid)
                return answer.read().decode(errors="replace").strip()[:_LONGEST]
        self.end()
        return f"the driver has not answered in {self._limit_s:.0f} s"

    def end(self) -> None:
        """Nobody waits for it: a driver that hangs may hold it for ever."""
        self._process.kill()
