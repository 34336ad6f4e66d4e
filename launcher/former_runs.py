"""What earlier runs of the same name tell of a job that is submitted again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals

from .runs import run_ids, runs_dir

_LOOKED_AT: Final = 5  # the newest


@dataclass(frozen=True, slots=True)
class FormerRuns:
    """``save_s`` is the longest save of the newest one that has saved; None when none has."""

    any: bool = False
    save_s: float | None = None


def former_runs(name: str, run_id: str) -> FormerRuns:
    """Of those called ``name`` all but ``run_id``."""
    ids = [one for one in run_ids() if one.rpartition("-")[0] == name and one != run_id]
    folders = [runs_dir() / one for one in ids]
    newest = sorted(folders, key=lambda folder: folder.lstat().st_mtime, reverse=True)[:_LOOKED_AT]
    longest = (max(_saves_s(RunFolder(folder)), default=None) for folder in newest)
    return FormerRuns(bool(ids), next((save_s for save_s in longest if save_s), None))


def _saves_s(folder: RunFolder) -> Iterator[float]:
    for record in read_journals(folder.journals):
        seconds = record.data.get("seconds")
        if record.name == "CheckpointCommitted" and isinstance(seconds, float):
            yield seconds
