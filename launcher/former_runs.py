"""What earlier runs of the same name, or in the same checkpoint directory, tell of a new job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.answer import give, given
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals
from relight.storage.errors import NoValidCheckpoint

from .runs import run_ids, runs_dir

_LOOKED_AT: Final = 5  # the newest
_LIMIT_S: Final = 5.0  # for a word about the checkpoints: they may be on a file system that is away
_REAP_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class FormerRuns:
    """``save_s`` is how long the newest checkpoint of the directory took, else the longest save of
    the newest run that has saved; None when none has."""

    any: bool = False
    save_s: float | None = None


def former_runs(name: str, run_id: str, directory: Path | None) -> FormerRuns:
    """Of those called ``name`` all but ``run_id``, and of the checkpoints in ``directory``: None
    where it is the new run's own."""
    if directory is not None and (newest_s := _newest_checkpoint_s(directory)) is not None:
        return FormerRuns(any=True, save_s=newest_s)
    ids = [one for one in run_ids() if one.rpartition("-")[0] == name and one != run_id]
    folders = [runs_dir() / one for one in ids]
    newest = sorted(folders, key=lambda folder: folder.lstat().st_mtime, reverse=True)[:_LOOKED_AT]
    longest = (max(_saves_s(RunFolder(folder)), default=None) for folder in newest)
    return FormerRuns(bool(ids), next((save_s for save_s in longest if save_s), None))


def _saves_s(folder: RunFolder) -> Iterator[float]:
    try:
        records = read_journals(folder.journals)
    except OSError:  # of a run that cannot be read nothing is known
        return
    for record in records:
        seconds = record.data.get("seconds")
        if record.name == "CheckpointCommitted" and isinstance(seconds, float):
            yield seconds


def _newest_checkpoint_s(directory: Path) -> float | None:
    """Asked of a process that may hang for us; None where it has no answer in time."""
    program = (sys.executable, "-P", "-m", "relight.launcher.former_runs", str(directory))
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(
        program, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, start_new_session=True
    )
    assert process.stdout is not None
    try:
        with suppress(ValueError, subprocess.TimeoutExpired):
            return float(given(process.communicate(timeout=_LIMIT_S)[0]) or "")
        return None
    finally:
        process.stdout.close()
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # in the kernel while the server is away
            process.wait(_REAP_S)


def _read_newest_s(directory: Path) -> float | None:
    if not directory.is_dir():
        return None
    from relight.storage.choose import newest_valid

    try:
        manifest = newest_valid(directory)
    except (NoValidCheckpoint, OSError):  # the run itself will say so
        return None
    return None if manifest is None else max(receipt.seconds for receipt in manifest.receipts)


if __name__ == "__main__":
    give(str(_read_newest_s(Path(sys.argv[1]))))
