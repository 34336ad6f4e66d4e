"""A job that ended before it ran: no supervisor of it could say how the run ended."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_FAILED, EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import (
    Verdict,
    read_verdict,
    verdict_of,
    write_verdict,
)

from .array_task import task_folder
from .clusters.slurm.client import SlurmClient
from .clusters.slurm.orphan import read_mark
from .clusters.slurm.parse import JobState, QueuedJob
from .queue import is_meant, queued_jobs
from .runs import StoredRun, job_ids
from .stored_plan import read_plan
from .sweep_tasks import read_tasks
from .unseen_end import tell_of_ends, write_unseen_end

_log: Final = logging.getLogger(__name__)
_QUICK_S: Final = 10.0


def verdict_of_unheard(run: StoredRun) -> Verdict | None:
    """The verdict of a run that has no job in the queue, written here; None when Slurm does not say
    that its newest job was cancelled, or that its only one failed before anything of ours ran, or
    that its array has gone on without it."""
    client = SlurmClient(timeout_s=_QUICK_S, pauses_s=())
    job_id = newest_job(run.folder)
    try:
        if job_id is None:
            return None
        order = _end_in_slurm(run.folder, job_id, client)
        if order is None:
            return None
        if queued_jobs(run, client):  # a warden sends the next job before it cancels its own
            return None
    except RelightError:
        return None
    if (known := read_verdict(run.folder)) is not None:
        return known
    try:
        write_unseen_end(run, order)
    except OSError as error:  # a full disk, say: how it ended is known all the same
        _log.warning("relight: the end of %s is not written down: %s", run.run_id, error)
        return verdict_of(order, time.time())
    return read_verdict(run.folder)


def _end_in_slurm(folder: RunFolder, job_id: str, client: SlurmClient) -> Finish | None:
    begun = any(folder.journals.glob("*.jsonl"))
    array, _, task = job_id.partition("_")
    remembered = client.tasks_of_array(array) if task and not begun else []
    if not remembered or any(is_meant(one.job_id, job_id) for one in remembered):
        return _end(job_id, client.last_state(job_id), begun=begun)
    # A task that is cancelled while its array waits leaves no record (22.05).
    state = JobState.UNKNOWN
    with suppress(RelightError):  # accounting may not be there
        state = client.last_state(job_id)
    reason = f"it never started, and job array {array} has no such task any more"
    return _end(job_id, state, begun=False) or _never_started(reason)


def _never_started(reason: str) -> Finish:
    return Finish(outcome=Outcome.CANCELLED, exit_code=EXIT_STOP, cause="cancelled", reason=reason)


def _end(job_id: str, state: JobState, *, begun: bool) -> Finish | None:
    if state is JobState.CANCELLED:
        reason = f"job {job_id} was cancelled, and nothing of the run is left in the queue"
        return Finish(
            outcome=Outcome.CANCELLED, exit_code=EXIT_STOP, cause="cancelled", reason=reason
        )
    if state is JobState.FAILED and not begun:
        reason = (
            f"job {job_id} failed before its script began; perhaps its output file cannot be "
            f"written: `sacct -j {job_id} -o State,ExitCode,NodeList,WorkDir` says more"
        )
        return Finish(
            outcome=Outcome.FAILED, exit_code=EXIT_FAILED, cause="launch failure", reason=reason
        )
    return None


def account_for_the_rest(sweep: StoredRun) -> None:
    """Writes the verdicts of tasks that never started, once no job of the sweep is left, and tells
    people of each."""
    client, arrays = SlurmClient(timeout_s=_QUICK_S), job_ids(sweep.folder)
    try:
        if not arrays or queued_jobs(sweep, client):
            return
        remembered = [task for array in arrays for task in client.tasks_of_array(array)]
    except RelightError:
        return
    ends = []
    for number in range(read_tasks(sweep.folder).count):
        started = RunFolder(sweep.folder.root / "tasks" / str(number)).journals.exists()
        task = None if started else task_folder(sweep.folder.root, number)
        if task is not None and not task.journals.exists() and read_verdict(task) is None:
            order = _end_of_task(task, remembered)
            try:
                write_verdict(task, order, time.time())
            except OSError as error:
                _log.warning("relight: the end of %s is not written down: %s", task.root, error)
                break
            ends.append((StoredRun(task, read_plan(task.root)), order))
    tell_of_ends(ends)


def _end_of_task(task: RunFolder, remembered: Sequence[QueuedJob]) -> Finish:
    job_id = newest_job(task)
    if job_id is not None:
        states = (one.state for one in remembered if is_meant(one.job_id, job_id))
        if known := _end(job_id, next(states, JobState.UNKNOWN), begun=False):
            return known
    return _never_started("it never started, and no job of its sweep is left in the queue")


def newest_job(folder: RunFolder) -> str | None:
    """The last job of a run that anybody of ours knows of, whether it has begun or not."""
    arranged = [
        str(record.data["job_id"])
        for record in read_journals(folder.journals)
        if record.name == "AllocationArranged"
    ]
    known = [*job_ids(folder), *arranged, *_sent_by_wardens(folder.attempts)]
    jobs = (job_id for job_id in known if re.fullmatch(r"\d+(_\d+)?", job_id))
    return max(jobs, key=lambda job_id: int(job_id.partition("_")[0]), default=None)


def _sent_by_wardens(attempts: Path) -> list[str]:
    marks = [read_mark(path) for path in attempts.glob("*/orphaned")]
    return [mark.restart.job_id for mark in marks if mark is not None and mark.restart is not None]
