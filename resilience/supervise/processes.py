"""The supervisor's child processes: cluster commands that run a step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import Final

from . import tied
from .cluster import Command

_log: Final = logging.getLogger(__name__)
POLITE_S: Final = 3.0


async def start_tied(
    command: Command, output: Path | None, *, stdout: int | None = None
) -> asyncio.subprocess.Process:
    """As :func:`start`, for what is to end with this process, however that ends."""
    # Not by preexec_fn: this process has threads.
    return await start(Command(tied.to_me(command.argv), command.env), output, stdout=stdout)


async def start(
    command: Command, output: Path | None, *, stdout: int | None = None
) -> asyncio.subprocess.Process:
    """Start a step's command in a session of its own; its output goes to a file.

    With ``stdout``, a descriptor, only what it complains of does.
    """
    fd = _opened(output)
    try:
        return await asyncio.create_subprocess_exec(
            *command.argv,
            env=dict(command.env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=fd if stdout is None else stdout,
            stderr=fd,
            start_new_session=True,
        )
    finally:
        os.close(fd)


def _opened(output: Path | None) -> int:
    """A descriptor to write to; what cannot be kept for now is thrown away."""
    try:
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            return os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        _log.warning("what a step says is not kept: %s", error)
    return os.open(os.devnull, os.O_WRONLY)


async def start_beside(command: Command) -> asyncio.subprocess.Process:
    """Start a command that reads and writes where this process does."""
    return await asyncio.create_subprocess_exec(
        *command.argv, env=dict(command.env), start_new_session=True
    )


async def end(process: asyncio.subprocess.Process, patience_s: float = POLITE_S) -> None:
    """Wait a little for a process to end by itself, then end it.

    Also in a task that is being cancelled: there ``asyncio.timeout`` of Python 3.11.2 raises no
    TimeoutError, but CancelledError, and the process would stay.
    """
    ended = asyncio.create_task(process.wait())
    for order in (None, signal.SIGTERM, signal.SIGKILL):
        if order is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(order)
        if (await asyncio.wait({ended}, timeout=patience_s))[0]:
            return
    ended.cancel()


async def run(command: Command, output: Path | None, limit_s: float) -> int | None:
    """Run a step's command to its end; None when it took longer than ``limit_s``."""
    process = await start_tied(command, output)
    try:
        async with asyncio.timeout(limit_s):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
