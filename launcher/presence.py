"""Reads what a status is made of: files of the run folder, and whether its job is still there."""

from __future__ import annotations

from relight.errors import RelightError
from relight.resilience.supervise.standing import read_verdict

from .clusters.local_front import is_alive
from .clusters.slurm.client import SlurmClient, me
from .clusters.slurm.parse import JobState, QueuedJob
from .report import Presence, RunFacts
from .runs import StoredRun, job_ids
from .watch import read_progress


def read_facts(run: StoredRun) -> RunFacts:
    """The facts about a run; Slurm is asked only when the files do not say how it ended."""
    verdict = read_verdict(run.folder)
    ids = job_ids(run.folder)
    presence, live_job = Presence.ABSENT, None
    if verdict is None:
        presence, live_job = _local(run) if run.plan.cluster == "local" else _slurm(run)
    return RunFacts(
        run_id=run.run_id,
        cluster=run.plan.cluster,
        run_dir=str(run.folder.root),
        job_id=live_job or (ids[-1] if ids else None),
        progress=read_progress(run.folder),
        verdict=verdict,
        presence=presence,
        has_started=any(run.folder.journals.glob("*.jsonl")),
    )


def queued_jobs(run: StoredRun, client: SlurmClient) -> list[QueuedJob]:
    """The jobs of a run that are in the queue: by its unique name, or by the id that it keeps."""
    if run.plan.config.program == "ranks":
        return client.jobs_named(run.run_id, me())
    ids = job_ids(run.folder)
    if ids:
        return client.job_in_queue(ids[0])
    return client.jobs_of_script(run.folder.script, me())  # sbatch got no answer


def _local(run: StoredRun) -> tuple[Presence, str | None]:
    """A local run without a process waits for ``relight run --resume``."""
    return (Presence.RUNNING if is_alive(run.folder) else Presence.WAITING), None


def _slurm(run: StoredRun) -> tuple[Presence, str | None]:
    """No answer is "unknown", and an empty one "absent": neither says that the run has ended."""
    try:
        jobs = queued_jobs(run, SlurmClient(timeout_s=10.0, pauses_s=(0.5,)))
    except RelightError:
        return Presence.UNKNOWN, None
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if running:
        return Presence.RUNNING, running[-1].job_id
    return (Presence.WAITING, jobs[-1].job_id) if jobs else (Presence.ABSENT, None)
