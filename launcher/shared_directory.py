"""Whether a new run would take the checkpoint directory of another one that is still alive."""

from __future__ import annotations

import os
from collections.abc import Iterable

from relight.resilience.config import RunConfig
from relight.resilience.supervise.standing import read_verdict

from .presence import read_facts
from .queue import Queue
from .runs import StoredRun, all_runs
from .shared_answer import answer_file
from .status import Presence, status


def directory_warnings(run: RunConfig) -> list[str]:
    """What to tell who starts this run, of the user's own live runs with its directory; a directory
    in the run folder is new, and of nobody else."""
    directory = run.checkpoint.directory
    if directory.is_relative_to(run.run_dir):
        return []
    queue = Queue(shared=answer_file(os.environ))
    others = [
        one
        for one in all_runs()
        if one.plan.config.checkpoint.directory == directory and one.run_id != run.run_id
    ]
    return [warning for one in others if (warning := _warning(one, queue, run.run_id))]


def waits_for_jobs(options: Iterable[str]) -> bool:
    """Whether a job with these options of sbatch starts after others: the one that has its
    directory now may be one of them."""
    return any(name.lstrip("-") == "dependency" for name in options)


def _warning(other: StoredRun, queue: Queue, new: str) -> str | None:
    """A local run that waits for ``relight run --resume`` is alive only once somebody does that."""
    if read_verdict(other.folder) is not None:
        return None
    facts = read_facts(other, queue, alone=False)
    waits = facts.presence is Presence.WAITING and other.plan.cluster == "slurm"
    if not waits and facts.presence is not Presence.RUNNING:
        return None
    return (
        f"run {other.run_id} ({status(facts).state}) saves in "
        f"{other.plan.config.checkpoint.directory}, too: when both are alive, the one that started "
        f"its ranks first stops, and the other goes on from its state. If that is not meant, "
        f"`relight cancel` one of them, and give {new} a checkpoint.directory of its own"
    )
