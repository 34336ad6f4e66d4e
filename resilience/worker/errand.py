"""A process beside the program that does one thing for its agent, and leaves an answer.

Standard library only, for the agent is light.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from relight.answer import given

# As for the writer of a program: what tells a job to stop is no reason to leave a thing half done.
_NOT_FOR_US: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Errand:
    """``python -m module arguments``. Raises OSError when it cannot be started.

    ``secret`` is what it finds on its standard input: command lines are for everybody to read.
    """

    def __init__(self, module: str, arguments: Sequence[str], secret: str = "") -> None:
        # Files and not pipes: a pipe that nobody reads would hold a process with a long answer.
        self._answer = _in_memory(b"")
        with _in_memory(secret.encode()) as given:
            self._process = start(module, arguments, given.fileno(), self._answer.fileno())
        self.pid = self._process.pid

    def look(self) -> dict[str, Any] | None:
        """Its answer once it has ended, with a ``reason`` if it failed; None until then."""
        if self._process.poll() is None:
            return None
        with self._answer as file:
            if self._process.returncode:
                reason = f"the process that copies ended with {self._process.returncode}"
                return {"reason": reason, "errno": None}
            return _read(file)

    def kill(self) -> None:
        """Not waited for: a file system that hangs may hold it."""
        self._process.kill()


def start(
    module: str, arguments: Sequence[str], stdin: int, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a module of ours as a process that signals to the job do not reach."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)  # the child inherits it
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments], stdin=stdin, stdout=stdout
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_memory(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("relight-errand"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _read(file: BinaryIO) -> dict[str, Any]:
    file.seek(0, io.SEEK_SET)
    said = given(file.read())
    if said is None:
        return {"reason": "the process that copies has said nothing", "errno": None}
    answer: dict[str, Any] = json.loads(said)
    return answer
