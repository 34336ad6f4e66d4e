"""Tells people that an attempt, or the run, has ended: by a webhook, and by a command.

Each is a short process with a time limit, so nothing that hangs or fails holds the run up. What
came of it is an event for the journal, without the address: it may be a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.actions import Finish, Outcome
from ..decide.events import Notified
from ..run_folder import RunFolder
from ..worker.secret_files import read_secrets

LIMIT_S: Final = 10.0
_POST: Final = (sys.executable, "-P", "-m", "relight.resilience.supervise.post")
# What `notify.on` calls them.
_OCCASIONS: Final = {
    Outcome.COMPLETED: "finished",
    Outcome.FAILED: "failed",
    Outcome.STOPPED: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.RESTARTING: "restarted",
    Outcome.INTERRUPTED: "interrupted",
}


async def notify(
    config: RunConfig, order: Finish, step: int | None, left_s: float, *, limit_s: float = LIMIT_S
) -> list[Notified]:
    """What came of telling, where the spec asks for it; in ``left_s`` the job will be killed."""
    asked = config.notify
    if asked is None or _OCCASIONS[order.outcome] not in asked.on:
        return []
    message = await asyncio.to_thread(message_of, config, order, step)
    limit_s = max(1.0, min(limit_s, left_s))
    ways = []
    if asked.command:
        words = f"{json.dumps(message)}\n".encode()
        ways.append(_tell("command", asked.command, words, config.working_dir, limit_s))
    if asked.webhook is not None or asked.webhook_file is not None:
        ways.append(_post(config, message, limit_s))
    return list(await asyncio.gather(*ways))


def message_of(config: RunConfig, order: Finish, step: int | None) -> dict[str, object]:
    """The body; ``text`` is what chat services show."""
    state = order.outcome.value
    where = "" if step is None else f" at step {step}"
    return {
        "text": f"run {config.run_id} is {state}{where}: {order.reason}",
        "run_id": config.run_id,
        "name": config.name,
        "state": state,
        "cause": order.cause,
        "reason": order.reason,
        "step": step,
        "attempts": sum(1 for _ in RunFolder(config.run_dir).journals.glob("*.jsonl")),
    }


async def _post(config: RunConfig, message: dict[str, object], limit_s: float) -> Notified:
    """The address goes through a pipe: everybody sees the arguments of a process."""
    assert config.notify is not None
    url = config.notify.webhook
    if config.notify.webhook_file is not None:
        files = {"notify.webhook": config.notify.webhook_file}
        try:
            url = (await asyncio.to_thread(read_secrets, files))["notify.webhook"]
        except (OSError, ValueError) as error:
            return Notified(by="webhook", failure=str(error))
    words = json.dumps({"url": url, "message": message}).encode()
    return await _tell("webhook", _POST, words, config.working_dir, limit_s)


async def _tell(
    by: str, argv: Sequence[str], words: bytes, working_dir: Path, limit_s: float
) -> Notified:
    """Only our own process is quoted: what another one prints may hold anything."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=working_dir,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if by == "webhook" else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return Notified(by=by, failure=f"{argv[0]} cannot be started: {error.strerror}")
    try:
        async with asyncio.timeout(limit_s):
            said, _ = await process.communicate(words)
    except TimeoutError:
        return Notified(by=by, failure=f"no end after {limit_s:.0f} s")
    finally:
        with contextlib.suppress(ProcessLookupError):  # and what it may have left behind
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode == 0:
        return Notified(by=by)
    return Notified(by=by, failure=(said or b"").decode() or f"exit code {process.returncode}")
