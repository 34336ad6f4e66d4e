"""Whether the places that a run writes to work: asked by a process that may hang for us.

Whoever touches a file system that is away may wait in the kernel until it is back, and cannot be
killed. Such a process is left to its fate, and is the only one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, TypeVar

Result = TypeVar("Result")
PATIENCE_S: Final = 20.0  # with work, before it is asked whether its directory answers
LIMIT_S: Final = 10.0
_REAP_S: Final = 1.0
_WORD: Final = b"relight"


class Question:
    """Asked again and again; while a process of an earlier time hangs no other one is sent.

    Attributes:
        silent: there was no answer the last time, as opposed to a bad one.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._process: asyncio.subprocess.Process | None = None
        self.silent = False

    async def ask(self) -> str | None:
        """Why one of them does not work; None when all do."""
        self.silent = True  # until there is one
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIMIT_S):
                    await self._process.wait()
            if self._process.returncode is None:
                return f"process {self._process.pid}, which has asked it, cannot be killed"
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "relight.resilience.supervise.storage_probe",
                *map(str, self._directories),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.silent = False  # that it does not answer nobody knows
            return f"no process can be started to ask it: {error.strerror}"
        try:
            async with asyncio.timeout(LIMIT_S):
                _, words = await process.communicate()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                process.kill()
                async with asyncio.timeout(_REAP_S):
                    await process.communicate()
            return f"no answer in {LIMIT_S:.0f} s"
        self.silent = False
        if process.returncode == 0:
            return None
        return (words.decode(errors="replace").strip().splitlines() or ["no word"])[-1]


async def while_it_answers(work: Coroutine[object, object, Result], directory: Path) -> Result:
    """What comes of work in a directory, however long it takes while that answers others.

    Raises:
        TimeoutError: it does not. What the work does in a thread goes on there.
        and what the work raises.
    """
    task = asyncio.create_task(work)
    question = Question(directory)
    try:
        while not (await asyncio.wait((task,), timeout=PATIENCE_S))[0]:
            fault = await question.ask()
            if fault is not None and question.silent and not task.done():
                raise TimeoutError(errno.ETIMEDOUT, fault, str(directory))
        return task.result()
    finally:
        task.cancel()


def probe(directory: Path) -> None:
    """Write, sync, read and remove a small file.

    Raises:
        OSError: that did not work.
    """
    directory.mkdir(exist_ok=True)  # without parents: they are there unless they are not mounted
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe-") as file:
        file.write(_WORD)
        file.flush()
        os.fsync(file.fileno())
        if Path(file.name).read_bytes() != _WORD:
            raise OSError(f"{file.name} does not hold what was written to it")


if __name__ == "__main__":
    try:
        for argument in sys.argv[1:]:
            probe(Path(argument))
    except OSError as error:
        sys.exit(str(error))
