"""Reads what a status is made of: files of the run folder, and whether its job is still there."""

from __future__ import annotations

import time

from relight.errors import RelightError
from relight.resilience.supervise.standing import read_verdict

from .clusters.local_front import is_alive
from .clusters.slurm.parse import JobState, QueuedJob
from .queue import Queue, belonging
from .runs import StoredRun, job_ids, submitted_job
from .shared_answer import Answer
from .status import Presence, RunFacts
from .sweep_tasks import read_tasks
from .unheard import account_for_the_rest, verdict_of_unheard
from .waiting import HELD, waits_for
from .watch import read_progress


def read_facts(run: StoredRun, queue: Queue, *, alone: bool = True) -> RunFacts:
    """The facts about a run; Slurm is asked only when the files do not say how it ended, and of
    this run by itself only where it stands ``alone``: a list of old runs would ask of each."""
    tasks = read_tasks(run.folder) if run.is_sweep else None
    verdict = read_verdict(run.folder) or (tasks.verdict if tasks is not None else None)
    ids = job_ids(run.folder)
    presence, job = Presence.ABSENT, None
    if verdict is None:
        presence, job = _local(run) if run.plan.cluster == "local" else _slurm(run, queue)
    absent = presence is Presence.ABSENT and verdict is None
    if absent and alone and queue.may_ask_of(run.run_id):
        if run.is_sweep:
            account_for_the_rest(run)
            tasks = read_tasks(run.folder)
            verdict = tasks.verdict
        else:
            verdict = verdict_of_unheard(run)
    now = time.time()
    has_started = any(run.folder.journals.glob("*.jsonl"))
    began = has_started or any(run.folder.root.glob("tasks/*/journal/*.jsonl"))
    return RunFacts(
        run_id=run.run_id,
        cluster=run.plan.cluster,
        run_dir=str(run.folder.root),
        job_id=job.job_id if job else (ids[-1] if ids else None),
        progress=read_progress(run.folder),
        verdict=verdict,
        presence=presence,
        has_started=has_started,
        held=_is_held(run, job),
        waits_for=waits_for(job, now, began=began)
        if job
        else _hand(run, presence, unasked=absent and not alone),
        now=now,
        tasks=None if tasks is None else tasks.counts,
    )


def unreadable(run: StoredRun, fault: RelightError | OSError) -> RunFacts:
    """What is left to say of a run whose files are damaged, or closed to us."""
    return RunFacts(
        run_id=run.run_id,
        cluster=run.plan.cluster,
        run_dir=str(run.folder.root),
        job_id=None,
        progress=None,
        verdict=None,
        presence=Presence.UNKNOWN,
        has_started=False,
        waits_for=f"repair: {fault}",
        now=time.time(),
    )


def _is_held(run: StoredRun, job: QueuedJob | None) -> bool:
    """Whether somebody has to let it go; the mark is that of ``relight hold`` on a local run."""
    if run.plan.cluster == "local":
        return run.folder.held.exists()
    return job is not None and job.reason in HELD


def _hand(run: StoredRun, presence: Presence, *, unasked: bool) -> str | None:
    """What a person has to type: Slurm brings a run back by itself, nobody does it for a local one,
    and how a job has ended is asked of a single one only."""
    if unasked:
        return f"relight status {run.run_id}, which asks Slurm how it ended"
    if run.plan.cluster != "local" or presence is not Presence.WAITING:
        return None
    return f"relight run --resume {run.run_id}"


def _local(run: StoredRun) -> tuple[Presence, None]:
    """A local run without a process waits for ``relight run --resume``."""
    return (Presence.RUNNING if is_alive(run.folder) else Presence.WAITING), None


def _slurm(run: StoredRun, queue: Queue) -> tuple[Presence, QueuedJob | None]:
    """No answer is "unknown", and an empty one "absent": neither says that the run has ended. One
    from before the submission does not know of the job."""
    answer = queue.answer()
    if answer.jobs is None:
        return Presence.UNKNOWN, None
    mine = belonging(run, answer.jobs)
    running = [job for job in mine if job.state is JobState.RUNNING]
    if running:
        return Presence.RUNNING, running[-1]
    if mine:
        return Presence.WAITING, mine[-1]
    return (Presence.WAITING if _is_newer(run, answer) else Presence.ABSENT), None


def _is_newer(run: StoredRun, answer: Answer) -> bool:
    sent = submitted_job(run.folder)
    try:
        return sent.stat().st_mtime >= answer.asked
    except OSError:  # sbatch gave no answer
        return run.plan.created >= answer.asked
