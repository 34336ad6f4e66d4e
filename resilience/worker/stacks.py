"""Where programs that hang are: they print it themselves, or py-spy looks, if it is on PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# A program that can answer does so at once; the supervisor waits two seconds in all.
_ANSWER_S: Final = 0.5


class Stacks:
    """The stacks of one program, into its log; ``joined`` are its processes that use the API."""

    def __init__(self, program: int, joined: Sequence[int], log: Path | None) -> None:
        self._program = program
        self._joined = tuple(joined)
        self._log = log
        self._ask_others_at = time.monotonic() + _ANSWER_S
        for pid in joined:
            # One that does not listen any more, since it is at its exit, would die of it.
            with contextlib.suppress(OSError):
                if _has(pid, "SigCgt"):
                    os.kill(pid, signal.SIGUSR2)

    def look(self) -> bool:
        """Whether all is done; to be asked again until it is."""
        if time.monotonic() < self._ask_others_at:
            return False
        spy = shutil.which("py-spy")
        if spy is not None and self._log is not None:
            for words in self._unanswered():
                with contextlib.suppress(OSError), self._log.open("ab") as output:
                    # What hangs does not move, and one that is stopped cannot be stopped.
                    subprocess.Popen(
                        [spy, "dump", "--nonblocking", *words], stdout=output, stderr=output
                    )
        return True

    def _unanswered(self) -> list[tuple[str, ...]]:
        """What py-spy is told, once for each process that has not answered."""
        if not self._joined:  # nobody in it could
            return [("--subprocesses", "--pid", str(self._program))]
        return [("--pid", str(pid)) for pid in self._joined if not _answered(pid)]


def _answered(pid: int) -> bool:
    try:
        return _has(pid, "SigCgt") and not _has(pid, "ShdPnd")
    except OSError:  # it has ended
        return True


def _has(pid: int, mask: str) -> bool:
    """Whether SIGUSR2 is in a mask of a process: caught, or still to be delivered (proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = int(status.partition(f"\n{mask}:")[2].split()[0], 16)
    return bool(numbers >> (signal.SIGUSR2 - 1) & 1)
