"""What an agent says first: who it is, by the word that its supervisor knows it by."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from ..messages import Message
from .beats import SHORT_S

TOKEN_PATIENCE_S: Final = 30.0  # half of the time that the supervisor waits for us


def first_words() -> Message:
    """The ``hello`` of the agent that this process is, but for its address."""
    task, local_task, node = _identity()
    return {
        "type": "hello",
        "token": _token(Path(os.environ["RELIGHT_TOKEN_FILE"])),
        "step": os.environ["RELIGHT_STEP"],
        "task": task,
        "local_task": local_task,
        "node": node,
        "pid": os.getpid(),
    }


def _identity() -> tuple[int, int, str]:
    """(task, local task, node) of this process, from whoever started the step."""
    env = os.environ
    if "RELIGHT_TASK" in env:
        return int(env["RELIGHT_TASK"]), int(env["RELIGHT_LOCAL_TASK"]), env["RELIGHT_NODE"]
    return int(env["SLURM_PROCID"]), int(env["SLURM_LOCALID"]), env["SLURMD_NODENAME"]


def _token(path: Path) -> str:
    """The word that the supervisor knows us by; the run folder may be away for a moment."""
    give_up_at = time.monotonic() + TOKEN_PATIENCE_S
    while True:
        try:
            return path.read_text().strip()
        except OSError:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(SHORT_S)
