"""The agent's question whether GPUs have given back what its last program had of their memory.

Standard library only; NVML is loaded by a process of its own, and on nodes with a driver only.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from relight.answer import given

from ..health.gpu.reading import DRIVERS

_PROGRAM: Final = "relight.resilience.health.gpu.given_back"
_START_S: Final = 5.0  # for Python and the driver's library to begin
_LONGEST: Final = 1000  # characters of an answer, which a pipe holds


def has_gpus(root: Path = Path("/")) -> bool:
    """Whether a driver of GPUs is loaded on this node."""
    return any((root / driver).exists() for driver in DRIVERS)


class GpuMemory:
    """One question at a time; ``pids`` holds its process as long as there is one."""

    def __init__(self, pids: set[int]) -> None:
        self._pids = pids
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: list[subprocess.Popen[bytes]] = []
        self._limit_s = 0.0
        self._give_up_at = 0.0

    def ask(self, limit_s: float, gpus: int) -> bool:
        """Ask for ``limit_s`` at most, in the place of an earlier question. False: nobody can tell.

        ``gpus`` is how many the run has on a node.
        """
        self.end()
        self._limit_s = limit_s + _START_S
        self._give_up_at = time.monotonic() + self._limit_s
        command = [sys.executable, "-P", "-m", _PROGRAM, f"{limit_s:g}", str(gpus)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
        except OSError as error:  # so many processes there are, or so little memory
            sys.stderr.write(f"relight: GPUs are not asked for what they hold: {error}\n")
            return False
        self._pids.add(self._process.pid)
        return True

    def look(self) -> str | None:
        """What is held, "" when nothing is or nobody can tell; None while that is not known, or
        not asked."""
        for process in [one for one in self._killed if one.poll() is not None]:
            self._killed.remove(process)
            self._pids.discard(process.pid)
        if self._process is None:
            return None
        ended = self._process.poll() is not None
        if not ended and time.monotonic() < self._give_up_at:
            return None
        if not ended:
            self.end()
            return f"the driver has not answered in {self._limit_s:.0f} s"
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            self._pids.discard(self._process.pid)
            self._process = None
            return (given(answer.read()) or "")[:_LONGEST]

    def end(self) -> None:
        """Nobody waits for it: a driver that hangs may hold it for ever."""
        if self._process is None:
            return
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.kill()
        self._killed.append(self._process)
        self._process = None
