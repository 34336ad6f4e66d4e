"""Ends a run: no job of it runs, waits, or may start again by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import ClusterUnavailable
from relight.resilience.supervise.standing import read_verdict

from .clusters.local_front import is_alive
from .clusters.slurm.client import SlurmClient, SlurmRefused
from .clusters.slurm.parse import JobState
from .queue import queued_jobs, whole_ids
from .runs import StoredRun, job_ids
from .sweep_tasks import verdict_of
from .unseen_end import write_unseen_end

_WAIT_S: Final = 60.0
_TICK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What was done. ``ended`` says that nothing of the run is left, ``before`` as what it had
    ended when it was called."""

    jobs: tuple[str, ...]
    ended: bool
    before: str | None


def cancel(run: StoredRun, *, wait_s: float = _WAIT_S) -> Cancellation:
    """Cancels a run and waits until nothing of it is left.

    The mark in the run folder comes first: a supervisor that is just arranging a new allocation
    looks at it before and after, and takes it back.

    Raises:
        ClusterUnavailable: Slurm does not answer; the mark stays, so the run will not go on.
    """
    before = verdict_of(run)
    if before is None:  # with one, nothing of the run would start again
        tasks = (RunFolder(task) for task in run.folder.root.glob("tasks/*"))
        for folder in (run.folder, *(task for task in tasks if read_verdict(task) is None)):
            folder.cancelled.touch(mode=0o600)
    jobs, ended = _end_local(run, wait_s) if run.plan.cluster == "local" else _end_jobs(run, wait_s)
    if ended and verdict_of(run) is None:
        order = Finish(
            outcome=Outcome.CANCELLED,
            exit_code=EXIT_STOP,
            cause="cancelled",
            reason="relight cancel was called; no supervisor was alive",
        )
        write_unseen_end(run, order)
    return Cancellation(tuple(jobs), ended, None if before is None else before.state)


def _end_local(run: StoredRun, wait_s: float) -> tuple[list[str], bool]:
    deadline = time.monotonic() + wait_s
    while is_alive(run.folder):  # its front and its supervisor look for the mark
        if time.monotonic() > deadline:
            return job_ids(run.folder), False
        time.sleep(_TICK_S)
    return job_ids(run.folder), True


def _end_jobs(run: StoredRun, wait_s: float) -> tuple[list[str], bool]:
    """Cancels jobs until the queue holds no such job: a successor may be on its way there."""
    client = SlurmClient()
    deadline = time.monotonic() + wait_s
    cancelled: dict[str, None] = {}
    while True:
        jobs = queued_jobs(run, client)
        if not jobs:
            return list(cancelled), True
        left = whole_ids(run, [job for job in jobs if job.state is not JobState.COMPLETING])
        if left:
            _cancel(left, client)
            cancelled |= dict.fromkeys(left)
        if time.monotonic() > deadline:
            return list(cancelled), False
        time.sleep(_TICK_S)


def _cancel(ids: Sequence[str], client: SlurmClient) -> None:
    """Of several, one may have just ended; what the queue shows next is cancelled again."""
    try:
        client.cancel(ids)
    except SlurmRefused as refusal:
        if "Invalid job id" not in refusal.answer:
            raise ClusterUnavailable(f"jobs {ids} are not cancelled: {refusal}") from None
