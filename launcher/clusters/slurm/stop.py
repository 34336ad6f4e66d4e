"""Why Slurm wants a job to stop, from what it says about the job (pure).

Fingerprints seen on 22.05. While processes are being killed the state is COMPLETING whatever the
cause, so the state alone says nothing:

========================  ==========================================================
start of preemption       RUNNING, and EndTime (or PreemptTime) has moved
warning before the limit  RUNNING, EndTime as at the start and near
time limit                COMPLETING, Reason=TimeLimit
requeued, or preempted    Restarts is above the attempt's own count
scancel                   COMPLETING, none of these; of a component, that one
========================  ==========================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from relight.resilience.supervise.cluster import StopCause, StopNotice

from .parse import JobFacts, JobState

_WARNING_SLACK_S: Final = 120.0  # Slurm's warning may come a minute early
_SAME_END_S: Final = 5.0
_DUE_TO: Final = re.compile(r"CANCELLED AT (\S+) DUE TO ([A-Z ]+?)(?: \*\*\*)?$", re.MULTILINE)
_NODE_FAILURE: Final = re.compile(r"error: Node failure on ([\w.-]+)")
_LOGGED: Final = {
    "TIME LIMIT": StopCause.TIME_LIMIT,
    "PREEMPTION": StopCause.PREEMPTED,
    "JOB REQUEUE": StopCause.REQUEUED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """What was known of the job when this attempt began."""

    restarts: int
    end_time: float | None
    kill_wait_s: float
    lead_s: float


def judge_stop(
    start: AttemptStart,
    job: JobFacts,
    *,
    signal_name: str,
    to_supervisor: bool,
    log: str,
    now: float,
) -> StopNotice:
    """What a signal that has just arrived means. ``log`` is the job's output since its start.

    Without a signal (``signal_name`` does not begin with SIG) nothing is guessed: a user may have
    shortened the time limit.
    """
    if job.restarts > start.restarts:
        cause = _logged_cause(log) or StopCause.REQUEUED
        return StopNotice(
            cause=cause if cause is StopCause.PREEMPTED else StopCause.REQUEUED,
            kill_at=now + start.kill_wait_s,
            evidence=f"Slurm has requeued the job (Restarts was {start.restarts} and is "
            f"{job.restarts}){_lost_nodes(log)}",
        )
    if job.preempt_time is None:
        job = next((one for one in job.others if _is_ended_by_others(one)), job)
    if job.state is JobState.RUNNING:
        return _judge_running(start, job, signal_name, to_supervisor, now)
    kill_at = now + start.kill_wait_s
    evidence = f"Slurm has ended the job (state {job.state}, Reason={job.reason})"
    if job.reason == "TimeLimit" or job.state is JobState.TIMEOUT:
        return StopNotice(cause=StopCause.TIME_LIMIT, kill_at=kill_at, evidence=evidence)
    if job.reason == "Preempted" or job.state is JobState.PREEMPTED:
        return StopNotice(cause=StopCause.PREEMPTED, kill_at=kill_at, evidence=evidence)
    if job.state is JobState.PENDING:
        return StopNotice(cause=StopCause.REQUEUED, kill_at=kill_at, evidence=evidence)
    if logged := _logged_cause(log):
        return StopNotice(cause=logged, kill_at=kill_at, evidence="the job's log says so")
    if job.state in (JobState.COMPLETING, JobState.CANCELLED):
        evidence = f"scancel ended the job (state {job.state}, Slurm gives no other reason)"
        return StopNotice(cause=StopCause.CANCELLED, kill_at=kill_at, evidence=evidence)
    return StopNotice(cause=StopCause.UNKNOWN, kill_at=kill_at, evidence=evidence)


def _is_ended_by_others(component: JobFacts) -> bool:
    """Whether somebody ends this one of a heterogeneous job, which cannot go on without it: its
    EndTime moves like that of all at a preemption."""
    return component.state in (JobState.COMPLETING, JobState.CANCELLED)


def _judge_running(
    start: AttemptStart, job: JobFacts, signal_name: str, to_supervisor: bool, now: float
) -> StopNotice:
    end = job.end_time
    if job.preempt_time is not None:
        evidence = "Slurm has set PreemptTime"
        return _warning(StopCause.PREEMPTED, end, evidence)
    moved = end is not None and (start.end_time is None or end < start.end_time - _SAME_END_S)
    if moved and signal_name.startswith("SIG"):
        evidence = f"EndTime moved from {start.end_time} to {end} while the job runs"
        return _warning(StopCause.PREEMPTED, end, evidence)
    near = end is not None and end - now <= start.lead_s + _WARNING_SLACK_S
    if near and to_supervisor and signal_name == "SIGUSR1":
        evidence = "the warning before the time limit; EndTime is as it was"
        return _warning(StopCause.TIME_LIMIT, end, evidence)
    evidence = "the job runs on and its EndTime is as it was"
    return StopNotice(cause=StopCause.SIGNALLED, kill_at=None, evidence=evidence)


def _warning(cause: StopCause, end: float | None, evidence: str) -> StopNotice:
    return StopNotice(cause=cause, kill_at=end, evidence=evidence, warning=True)


def _logged_cause(log: str) -> StopCause | None:
    """The last ``DUE TO`` of slurmstepd: the only witness on sites without accounting."""
    found = _DUE_TO.findall(log)
    return _LOGGED.get(found[-1][1].strip()) if found else None


def _lost_nodes(log: str) -> str:
    """srun is the only one to name the node that Slurm requeues a script's job for."""
    nodes = dict.fromkeys(_NODE_FAILURE.findall(log))
    return f" after the failure of {', '.join(nodes)}" if nodes else ""
