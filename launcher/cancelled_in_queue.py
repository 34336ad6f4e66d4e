"""A job that was cancelled while it waited: no supervisor of it could say how the run ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import Verdict, read_verdict, write_verdict

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.orphan import read_mark
from .clusters.slurm.parse import JobState
from .queue import queued_jobs
from .runs import StoredRun, job_ids

_QUICK_S: Final = 10.0


def verdict_of_cancelled(run: StoredRun) -> Verdict | None:
    """The verdict of a run that has no job in the queue, written here; None when Slurm does not say
    that its newest job was cancelled."""
    client = SlurmClient(timeout_s=_QUICK_S, pauses_s=())
    job_id = newest_job(run.folder)
    try:
        if job_id is None or client.last_state(job_id) is not JobState.CANCELLED:
            return None
        if queued_jobs(run, client):  # a warden sends the next job before it cancels its own
            return None
    except RelightError:
        return None
    if read_verdict(run.folder) is None:
        reason = f"job {job_id} was cancelled, and nothing of the run is left in the queue"
        order = Finish(
            outcome=Outcome.CANCELLED, exit_code=EXIT_STOP, cause="cancelled", reason=reason
        )
        write_verdict(run.folder, order, time.time())
    return read_verdict(run.folder)


def newest_job(folder: RunFolder) -> str | None:
    """The last job of a run that anybody of ours knows of, whether it has begun or not."""
    arranged = [
        str(record.data["job_id"])
        for record in read_journals(folder.journals)
        if record.name == "AllocationArranged"
    ]
    known = [*job_ids(folder), *arranged, *_sent_by_wardens(folder.attempts)]
    return max((job_id for job_id in known if job_id.isdecimal()), key=int, default=None)


def _sent_by_wardens(attempts: Path) -> list[str]:
    marks = [read_mark(path) for path in attempts.glob("*/orphaned")]
    return [mark.restart.job_id for mark in marks if mark is not None and mark.restart is not None]
