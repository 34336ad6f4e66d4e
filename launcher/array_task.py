"""The run folder of one task of a job array: each task is a run of its own, with its own restarts.

Made by the task itself when it starts for the first time: at submission nobody knows the job's id.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from relight.resilience.run_folder import RunFolder


def folder_of(root: Path, env: Mapping[str, str]) -> Path:
    """The folder of this process's run: ``root``, or that of its array task below it."""
    task = env.get("SLURM_ARRAY_TASK_ID")
    if task is None:
        return root
    folder = RunFolder(root / "tasks" / task)
    if not folder.plan.exists():
        _make(RunFolder(root), folder, task)
    return folder.root


def _make(array: RunFolder, folder: RunFolder, task: str) -> None:
    content = json.loads(array.plan.read_text())
    run = content["run"]
    run["run_id"] = f"{run['run_id']}_{task}"
    run["run_dir"] = str(folder.root)
    run["checkpoint"]["directory"] = str(folder.root / "checkpoints")
    folder.attempts.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):  # so that the run is found by its id
        (array.root.parent / run["run_id"]).symlink_to(folder.root)
    part = folder.plan.with_suffix(".part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(content, file)
    part.replace(folder.plan)
