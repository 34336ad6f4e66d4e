"""The user's jobs in Slurm, and which of them belong to a run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relight.errors import RelightError
from relight.resilience.run_folder import RunFolder

from .clusters.slurm.client import SlurmClient, me
from .clusters.slurm.parse import QueuedJob
from .runs import StoredRun, job_ids
from .shared_answer import REST_S, Answer, shared_answer


def _ask() -> Sequence[QueuedJob]:
    return SlurmClient(timeout_s=10.0, pauses_s=(0.5,)).jobs_of(me())


@dataclass(slots=True)
class Queue:
    """One squeue for all runs, and never more than one in 10 s, however often it is looked at; with
    ``shared``, a file, also by other processes."""

    ask: Callable[[], Sequence[QueuedJob]] = _ask
    clock: Callable[[], float] = time.time
    shared: Path | None = None
    _answer: Answer | None = None
    _asked_of: dict[str, float] = field(default_factory=dict)

    def answer(self) -> Answer:
        """The jobs, and when Slurm was asked."""
        if self._answer is None or not self._answer.is_fresh(self.clock()):
            self._answer = (
                self._asked()
                if self.shared is None
                else shared_answer(self.shared, self._asked, self.clock)
            )
        return self._answer

    def _asked(self) -> Answer:
        now = self.clock()
        try:
            return Answer(now, self.ask())
        except RelightError:
            return Answer(now, None)

    def may_ask_of(self, run_id: str) -> bool:
        """Whether Slurm may be asked of one run by itself now; the next time is in 10 s."""
        asked, now = self._asked_of.get(run_id), self.clock()
        if asked is not None and now - asked < REST_S:
            return False
        self._asked_of[run_id] = now
        return True


def queued_jobs(run: StoredRun, client: SlurmClient) -> list[QueuedJob]:
    """The jobs of a run that are in the queue: by its unique name, or by the id that it keeps."""
    if run.plan.config.program == "ranks" and (run.is_sweep or run.of_array):
        return belonging(run, client.jobs_of(me()))
    if run.plan.config.program == "ranks":
        return client.jobs_named(run.run_id, me())
    ids = job_ids(run.folder)
    if ids:
        return belonging(run, client.job_in_queue(ids[0]))
    return client.jobs_of_script(run.folder.script, me())  # sbatch got no answer


def belonging(run: StoredRun, jobs: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The jobs of a run among those of its user: by their ids, or by the script that was sent.

    A task of an array has its own id here, though squeue lists it with others.
    """
    ids = job_ids(run.folder)
    found = ((job, _known_as(job.job_id, ids)) for job in jobs)
    return [
        replace(job, job_id=known) if known else job
        for job, known in found
        if known or _is_sent_by(run, job, by_id=bool(ids))
    ]


def whole_ids(run: StoredRun, jobs: Sequence[QueuedJob]) -> list[str]:
    """By which ids to cancel a run's jobs, or to wait for them: an array by its own, which also
    means the tasks that start meanwhile."""
    of_task = run.of_array
    return list(dict.fromkeys(j.job_id if of_task else j.job_id.partition("_")[0] for j in jobs))


def _is_sent_by(run: StoredRun, job: QueuedJob, *, by_id: bool) -> bool:
    config = run.plan.config
    if config.program == "script" and by_id:  # it keeps its id
        return False
    if run.is_sweep:  # of the arrays, and of tasks that went on as jobs of their own
        return job.command.startswith(f"{config.run_dir}/")
    return job.command == str(RunFolder(config.run_dir).script)


def _known_as(listed: str, ids: Sequence[str]) -> str | None:
    mine = (known for known in ids if is_meant(listed, known))
    return next((known if "_" in known else listed for known in mine), None)


def is_meant(listed: str, known: str) -> bool:
    """Whether squeue means a job, or tasks of an array, by ``7``, ``7_3`` or ``7_[1-3,9]``."""
    parent, _, tasks = listed.partition("_")
    wanted, _, task = known.partition("_")
    if listed == known or parent != wanted:
        return listed == known
    return not task or any(_holds(part, int(task)) for part in tasks.strip("[]").split(","))


def _holds(part: str, task: int) -> bool:
    """Whether ``3``, ``1-9`` or ``1-9:2`` holds a task."""
    match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
    if match is None:
        return False
    first, last, stride = (int(number) if number else None for number in match.groups())
    assert first is not None
    return first <= task <= (last or first) and (task - first) % (stride or 1) == 0
