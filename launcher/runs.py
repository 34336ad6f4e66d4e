"""Finds runs: by run id or its beginning, by Slurm job id, or by the path of the run folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relight.errors import RelightError, UsageError
from relight.resilience.config import ConfigDamaged
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import journals

from .array_task import task_folder
from .stored_plan import StoredPlan, read_plan


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that was submitted once."""

    folder: RunFolder
    plan: StoredPlan

    @property
    def is_sweep(self) -> bool:
        """Whether its tasks are runs of their own."""
        return self.folder.sweep.is_dir()

    @property
    def of_array(self) -> bool:
        """Whether it is a task of a job array."""
        return self.folder.root.parent.name == "tasks"

    @property
    def run_id(self) -> str:
        return self.plan.config.run_id


def runs_dir() -> Path:
    """Where run folders go by default, and where every run is found by its id."""
    home = os.environ.get("RELIGHT_HOME")
    return (Path(home) if home else Path.home() / ".relight").absolute() / "runs"


def find_run(wanted: str) -> StoredRun:
    """The one run that ``wanted`` names.

    Raises:
        UsageError: no run, several runs, or another user's run has this name.
        ConfigDamaged: its stored plan is not readable.
    """
    if "/" in wanted or wanted in (".", ".."):
        return _open(Path(wanted).absolute())
    folders = _folders()
    matches = [folder for folder in folders if folder.name == wanted]
    matches = matches or [folder for folder in folders if _had_job(folder, wanted)]
    matches = matches or [folder for folder in folders if folder.name.startswith(wanted)]
    found = {folder.name for folder in matches}  # tasks of an array begin with its name
    matches = [folder for folder in matches if folder.name.rpartition("_")[0] not in found]
    matches = matches or _tasks_of(wanted, folders)
    if not matches:
        raise UsageError(
            f"no run {wanted!r} in {runs_dir()}; `relight status` lists the runs, "
            "and a path finds one elsewhere"
        )
    if len(matches) > 1:
        names = ", ".join(folder.name for folder in matches)
        raise UsageError(f"{wanted!r} may be any of {names}: write more of the name")
    return _open(matches[0])


def _tasks_of(wanted: str, folders: list[Path]) -> list[Path]:
    """Runs of an array by the beginning of its name and their number; of a sweep also those that
    have not started."""
    beginning, _, number = wanted.rpartition("_")
    if not beginning or not number.isdecimal():
        return []
    ends = f"_{number}"
    begun = [one for one in folders if one.name.startswith(beginning) and one.name.endswith(ends)]
    if begun:
        return begun
    sweeps = [one for one in folders if one.name == beginning]
    sweeps = sweeps or [one for one in folders if one.name.startswith(beginning)]
    tasks = (
        task_folder(one.resolve(), int(number))
        for one in sweeps
        if one.is_dir() and one.stat().st_uid == os.getuid()
    )
    return [task.root for task in tasks if task is not None]


def find_one_run(wanted: str) -> StoredRun:
    """As :func:`find_run`, for what only one run can be asked.

    Raises:
        UsageError: as there, or it is a sweep.
    """
    run = find_run(wanted)
    refuse_sweep(run)
    return run


def refuse_sweep(run: StoredRun) -> None:
    """For what only one run can be asked.

    Raises:
        UsageError: the run is a sweep.
    """
    if run.is_sweep:
        raise UsageError(f"{run.run_id} is a sweep: name one of its runs, such as {run.run_id}_0")


def all_runs(complain: Callable[[str], object] = lambda _: None) -> list[StoredRun]:
    """Every run that can be read, oldest first; ``complain`` hears of those that cannot."""
    runs = []
    for folder in _folders():
        try:
            runs.append(_open(folder))
        except ConfigDamaged as error:
            complain(str(error))
        except RelightError as error:
            if isinstance(error.__cause__, PermissionError):
                complain(str(error))
            continue  # a folder that is being made or removed, or is another's, is no run of ours
    return sorted(runs, key=lambda run: run.plan.created)


def run_ids() -> list[str]:
    """The ids of all runs, whether they can be read or not."""
    return [folder.name for folder in _folders()]


def submitted_job(folder: RunFolder) -> Path:
    """The file that holds the ids of jobs that no journal has: of the first submission."""
    return folder.root / "job_id"


def add_job(folder: RunFolder, job_id: str) -> None:
    """Notes a job of the run that was sent before any attempt of it began."""
    with submitted_job(folder).open("a") as file:
        file.write(f"{job_id}\n")


def job_ids(folder: RunFolder) -> list[str]:
    """The job ids that a run has had, oldest first."""
    ids: dict[str, None] = {}
    first = submitted_job(folder)
    if first.is_file():
        ids |= dict.fromkeys(first.read_text().split())
    for journal in journals(folder.journals):
        ids[journal.stem.rpartition(".")[0]] = None
    return list(ids)


def _folders() -> list[Path]:
    folder = runs_dir()
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"cannot read the runs in {folder}: {error.strerror}; RELIGHT_HOME names another place"
        ) from error


def _had_job(folder: Path, job_id: str) -> bool:
    if re.fullmatch(r"\d+(_\d+)?", job_id) is None:
        return False
    try:
        return job_id in job_ids(RunFolder(folder))
    except OSError:  # one that cannot be read must not hide the others
        return False


def _open(root: Path) -> StoredRun:
    root = root.resolve()
    try:
        owner = root.stat().st_uid
    except OSError as error:
        raise UsageError(f"cannot open the run folder {root}: {error.strerror}") from error
    if owner != os.getuid():
        raise UsageError(f"{root} belongs to another user (uid {owner}): it is not opened")
    return StoredRun(RunFolder(root), read_plan(root))
