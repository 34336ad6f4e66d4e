"""The run folder of one task of a job array: each task is a run of its own, with its own restarts.

Made by the task itself when it starts for the first time, or when somebody asks for it: at
submission nobody knows the job's id, and a sweep may have thousands.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any, Final

from relight.resilience.run_folder import RunFolder

MARK: Final = "@relight-index@"  # where the number of a task goes; no shell and no JSON quotes it
_VALUE: Final = re.compile(r"\$\{sweep\.([A-Za-z0-9_]+)\}")


def folder_of(root: Path, env: Mapping[str, str], first: int | None = None) -> Path:
    """The folder of this process's run: ``root``, or that of its array task below it.

    ``first`` is the number of the array's first task, in a sweep that is split over several.
    """
    task = env.get("SLURM_ARRAY_TASK_ID")
    if task is None:
        return root
    number = task if first is None else str(first + int(task))
    folder = RunFolder(root / "tasks" / number)
    if not folder.plan.exists():
        _make(RunFolder(root), folder, number)
    if first is not None:
        _show_output(RunFolder(root), folder, f"{env['SLURM_ARRAY_JOB_ID']}_{task}.out")
    if (root / "CANCELLED").exists():
        folder.cancelled.touch(mode=0o600)
    return folder.root


def array_size(points: int, arrays: int) -> int:
    """How many tasks of a sweep are in each of its arrays; the last may have fewer."""
    return ceil(points / arrays)


def task_folder(root: Path, number: int) -> RunFolder | None:
    """The folder of a task of a sweep, though it has not started; None when there is no such task,
    or the sweep is not yet in the queue."""
    sweep, submitted = RunFolder(root), root / "job_id"
    if not sweep.sweep.is_dir() or not submitted.exists():
        return None
    jobs, count = submitted.read_text().split(), len(_points(sweep))
    if not jobs or not 0 <= number < count:
        return None
    folder = RunFolder(root / "tasks" / str(number))
    if not folder.plan.exists():
        array, task = divmod(number, array_size(count, len(jobs)))
        folder.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder.root / "job_id", f"{jobs[array]}_{task}\n")
        _make(sweep, folder, str(number))
    return folder


def _points(sweep: RunFolder) -> list[Mapping[str, str]]:
    points: list[Mapping[str, str]] = json.loads((sweep.sweep / "points.json").read_text())
    return points


def _make(array: RunFolder, folder: RunFolder, task: str) -> None:
    folder.attempts.mkdir(parents=True, exist_ok=True, mode=0o700)
    if array.sweep.is_dir():
        content = _of_sweep(array, int(task))
        script = (array.sweep / "job.sh").read_text().replace(MARK, task)
        _write(folder.script, script)
    else:
        content = _of_array(array, folder, task)
    with contextlib.suppress(FileExistsError):  # so that the run is found by its id
        (array.root.parent / content["run"]["run_id"]).symlink_to(folder.root)
    _write(folder.plan, json.dumps(content))  # the last: with it the folder is whole


def _of_array(array: RunFolder, folder: RunFolder, task: str) -> Any:
    content = json.loads(array.plan.read_text())
    run = content["run"]
    run["run_id"] = f"{run['run_id']}_{task}"
    run["run_dir"] = str(folder.root)
    run["checkpoint"]["directory"] = str(folder.root / "checkpoints")
    return content


def _of_sweep(array: RunFolder, number: int) -> Any:
    point = _points(array)[number]
    content = json.loads((array.sweep / "plan.json").read_text().replace(MARK, str(number)))
    run, checkpoint = content["run"], content["run"]["checkpoint"]
    for key in ("command", "resume"):
        run[key] = [put_in(word, point) for word in run[key]]
    run["env"] = {name: put_in(value, point) for name, value in run["env"].items()}
    checkpoint["directory"] = put_in(checkpoint["directory"], point)
    return content


def put_in(text: str, point: Mapping[str, str]) -> str:
    """A text of a spec with the values of a sweep's point."""
    return _VALUE.sub(lambda match: point[match[1]], text)


def _show_output(array: RunFolder, folder: RunFolder, name: str) -> None:
    """What the batch script prints, where that of any other run is."""
    with contextlib.suppress(FileExistsError):
        (folder.attempts / name).symlink_to(array.attempts / name)


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")  # wardens of setup begin beside us
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    part.replace(path)
