"""What speaks against the checkpoint directory of a new run, as seen from here: it is no place to
write, or another run that is still alive has it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import Final

from relight.resilience.config import RunConfig
from relight.resilience.supervise.standing import read_verdict

from .presence import read_facts
from .queue import Queue
from .runs import StoredRun, all_runs
from .shared_answer import answer_file
from .status import Presence, status

_ANSWER_S: Final = 2.0


def directory_warnings(run: RunConfig) -> list[str]:
    """What to tell who starts this run, of the place and of the user's own live runs with it; a
    directory in the run folder is new, and of nobody else."""
    directory = run.checkpoint.directory
    if directory.is_relative_to(run.run_dir):
        return []
    queue = Queue(shared=answer_file(os.environ))
    others = [
        one
        for one in all_runs()
        if one.plan.config.checkpoint.directory == directory and one.run_id != run.run_id
    ]
    shared = [warning for one in others if (warning := _warning(one, queue, run.run_id))]
    return [*_no_place_soon(directory), *shared]


def _no_place_soon(directory: Path) -> list[str]:
    """Nothing where the file system does not answer: nobody is to wait here for a warning."""
    found: list[str] = []
    asking = Thread(target=lambda: found.extend(_no_place(directory)), daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return list(found)


def _no_place(directory: Path) -> list[str]:
    """Only what is there tells: the file system may be mounted on the nodes alone."""
    try:
        nearest = next(one for one in (directory, *directory.parents) if os.path.lexists(one))
        if nearest.is_dir() and (
            os.access(nearest, os.W_OK | os.X_OK) or nearest.parent == nearest
        ):
            return []
        what = "not writable for you" if nearest.is_dir() else "no folder"
    except OSError as error:
        nearest, what = directory, f"out of your reach ({error.strerror})"
    return [
        f"checkpoint.directory {directory}: {nearest} is {what} on this machine; where it is so on "
        "the nodes, too, the run ends at its preflight"
    ]


def waits_for_jobs(options: Iterable[str]) -> bool:
    """Whether a job with these options of sbatch starts after others: the one that has its
    directory now may be one of them."""
    return any(name.lstrip("-") == "dependency" for name in options)


def _warning(other: StoredRun, queue: Queue, new: str) -> str | None:
    """A local run that waits for ``relight run --resume`` is alive only once somebody does that."""
    try:
        if read_verdict(other.folder) is not None:
            return None
        facts = read_facts(other, queue, alone=False)
    except OSError:  # what becomes of another run must not stop this one
        return None
    waits = facts.presence is Presence.WAITING and other.plan.cluster == "slurm"
    if not waits and facts.presence is not Presence.RUNNING:
        return None
    return (
        f"run {other.run_id} ({status(facts).state}) saves in "
        f"{other.plan.config.checkpoint.directory}, too: when both are alive, the one that started "
        f"its ranks first stops, and the other goes on from its state. If that is not meant, "
        f"`relight cancel` one of them, and give {new} a checkpoint.directory of its own"
    )
