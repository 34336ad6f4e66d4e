"""Jobs that wait for the end of a run: they are told when the run goes on as another job."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from relight.errors import RelightError
from relight.resilience.run_folder import RunFolder

from .client import SlurmClient

_log: Final = logging.getLogger(__name__)
_ENDS: Final = r"(?=$|[:,?+])"  # of a job in a dependency


def register(folder: RunFolder, job_id: str) -> None:
    """Notes that a job waits for the run."""
    folder.dependents.mkdir(mode=0o700, exist_ok=True)
    (folder.dependents / job_id).touch(mode=0o600)


def move_dependents(client: SlurmClient, folder: RunFolder, before: str, after: str) -> None:
    """Lets them wait for the run's next job in the place of this one, while this one still lives.

    One that is missed starts too early; it looks for itself then, and goes back into the queue.
    """
    _change(client, folder, after, lambda written: moved(written, before, after))
    if folder.root.parent.name == "tasks":  # whoever waits for the array waits for this job, too
        array = RunFolder(folder.root.parent.parent)
        _change(client, array, after, lambda written: joined(written, before, after))


def _change(
    client: SlurmClient, folder: RunFolder, after: str, change: Callable[[str], str]
) -> None:
    for waiting in folder.dependents.glob("*") if folder.dependents.is_dir() else ():
        try:
            written = client.job(waiting.name).dependency
            changed = change(written)
            if changed != written:
                client.update(waiting.name, "Dependency", changed)
        except RelightError as error:
            _log.warning("job %s does not know of job %s: %s", waiting.name, after, error)


def moved(dependency: str, before: str, after: str) -> str:
    """A dependency as ``scontrol show job`` writes it, with another job in it, as it is set."""
    return re.sub(rf"(?<=:){re.escape(before)}{_ENDS}", after, _plain(dependency))


def joined(dependency: str, before: str, after: str) -> str:
    """The same for a job that waits for all of an array: a task of it goes on as another job."""
    array, _, task = before.partition("_")
    if not task:
        return moved(dependency, before, after)
    whole = rf"(?<=:){re.escape(array)}(?:_\*)?{_ENDS}"
    return re.sub(whole, f"{array}:{after}", _plain(dependency))


def _plain(dependency: str) -> str:
    return re.sub(r"\([^)]*\)", "", dependency)
