"""Runs that wait for others: `after` of a spec, from its names to a start that is not too early.

Slurm knows jobs, and a run may have several, one after another. So a run waits for the job that the
other one has now, the other one passes its dependents on when it restarts, and whoever starts looks
once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relight.errors import RelightError, UsageError
from relight.resilience.decide.actions import Outcome
from relight.resilience.run_folder import RunFolder

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.dependents import register
from .clusters.slurm.parse import QueuedJob
from .queue import queued_jobs, whole_ids
from .runs import StoredRun, find_run
from .sweep_tasks import verdict_of


@dataclass(frozen=True, slots=True)
class Waiting:
    """``runs`` have to be done, and plain ``jobs`` to have ended well; ``now`` are jobs of runs."""

    runs: tuple[StoredRun, ...] = ()
    jobs: tuple[str, ...] = ()
    now: tuple[str, ...] = ()

    @property
    def option(self) -> str | None:
        """The value of sbatch's ``--dependency``; None when there is nothing to wait for."""
        parts = [("afterok", self.jobs), ("afterany", self.now)]
        return ",".join(":".join((kind, *ids)) for kind, ids in parts if ids) or None

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(str(run.folder.root) for run in self.runs)

    def register(self, job_id: str) -> None:
        """Let the runs know of the job that waits for them."""
        for run in self.runs:
            register(run.folder, job_id)


def tell(folders: Sequence[str], job_id: str) -> None:
    """Let the runs in these folders know of the job that waits for them now."""
    for folder in folders:
        register(RunFolder(Path(folder)), job_id)


@dataclass(frozen=True, slots=True)
class Unmet:
    """What a run that has started still waits for: other jobs, or, for a ``reason``, nothing."""

    jobs: tuple[str, ...] = ()
    reason: str | None = None


def resolve(names: Sequence[str], client: SlurmClient) -> Waiting:
    """What a spec's ``after`` means now.

    Raises:
        UsageError: there is no such run, or it has ended otherwise than well.
        ClusterUnavailable, SlurmMissing: as the client.
    """
    runs: dict[str, StoredRun] = {}
    jobs: dict[str, None] = {}
    for name in names:
        try:
            run = find_run(name)
        except UsageError:
            if not re.fullmatch(r"\d+(_\d+)?", name):
                raise
            jobs[name] = None
        else:
            runs[run.run_id] = run
    now = tuple(job for run in runs.values() for job in _jobs_of(run, client))
    return Waiting(tuple(runs.values()), tuple(jobs), now)


def _jobs_of(run: StoredRun, client: SlurmClient) -> Iterator[str]:
    verdict = verdict_of(run)
    if verdict is not None and verdict.state != Outcome.COMPLETED:
        raise UsageError(f"after: run {run.run_id} has ended as {verdict.state}")
    if verdict is None:
        if run.plan.cluster == "local":
            raise UsageError(f"after: run {run.run_id} runs without Slurm: nothing can wait for it")
        jobs = queued_jobs(run, client)
        if _is_script_array(run, jobs):
            raise UsageError(
                f"after: run {run.run_id} is a job array: nobody keeps how all of it ends; name "
                f"the tasks that have started, such as {run.run_id}_1, or submit with sbatch"
            )
        yield from whole_ids(run, jobs)


def _is_script_array(run: StoredRun, jobs: Sequence[QueuedJob]) -> bool:
    if run.is_sweep or run.of_array:
        return False
    return (run.folder.root / "tasks").is_dir() or any("_" in job.job_id for job in jobs)


def unmet(folders: Sequence[str], client: SlurmClient) -> Unmet | None:
    """What the runs in these folders still lack; None when all of them are done.

    Raises:
        ClusterUnavailable: Slurm does not say whether they go on.
    """
    ahead: list[str] = []
    for folder in folders:
        try:
            run = find_run(folder)
        except RelightError as error:
            return Unmet(reason=f"a run that this one waits for cannot be read: {error}")
        verdict = verdict_of(run)
        if verdict is None:
            jobs = whole_ids(run, queued_jobs(run, client))
            if not jobs and verdict_of(run) is None:
                return Unmet(reason=f"run {run.run_id} is neither done nor in the queue")
            ahead += jobs
        elif verdict.state != Outcome.COMPLETED:
            return Unmet(reason=f"run {run.run_id} has ended as {verdict.state}, and not as done")
    return Unmet(jobs=tuple(ahead)) if ahead else None
