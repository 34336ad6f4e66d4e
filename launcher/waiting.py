"""What a run waits for, in words: squeue's REASON as a sentence, or what its supervisor says. Pure.

The reasons are those of squeue(1), JOB REASON CODES. One that is not known is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from .clusters.slurm.parse import JobState, QueuedJob

HELD_BY_USER: Final = "JobHeldUser"
_REQUEUED_HELD: Final = "job requeued in held state"
HELD: Final = frozenset({HELD_BY_USER, _REQUEUED_HELD, "JobHeldAdmin"})  # by somebody's word
_HELD: Final = "it is held; `relight release` lets it go"
_NEVER: Final = ": it does not start like this; cancel it and ask for less"
BEGIN_TIME: Final = "BeginTime"
_SENTENCES: Final[Mapping[str, str]] = {
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs with a higher priority are ahead of it",
    "Resources": "it is next, once enough nodes are free",
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "what it depends on will never come true: cancel it",
    BEGIN_TIME: "it may not start before the time that `--begin` gave it",
    "JobArrayTaskLimit": "as many tasks of its array run as may at once",
    HELD_BY_USER: _HELD,
    _REQUEUED_HELD: _HELD,
    "JobHeldAdmin": "the site's staff holds it: ask them",
    "JobHoldMaxRequeue": "Slurm could not launch it several times and holds it; "
    "`relight release` tries again",
    "launch failed requeued held": "Slurm could not launch it and holds it; "
    "`relight release` tries again",
    "BadConstraints": "no nodes fit what it asks for, and none ever will: "
    "look at sbatch options, memory and excluded nodes",
    "NodeDown": "a node that it asks for is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionConfig": "its partition does not give what it asks for, such as so many nodes"
    f"{_NEVER}",
    "PartitionNodeLimit": f"it asks for more nodes than its partition gives{_NEVER}",
    "PartitionTimeLimit": f"it asks for more time than its partition gives{_NEVER}",
    "ReqNodeNotAvail": "nodes that it needs are not available, or reserved",
    "Reservation": "its reservation has not begun",
    "Licenses": "all licenses of a kind are in use",
    "InvalidAccount": "its account is not known to Slurm: cancel it",
    "InvalidQOS": "its quality of service is not known to Slurm: cancel it",
    "Cleaning": "its last start is being cleaned up",
    "Prolog": "the site's prolog runs on its nodes",
}
_REQUEUED: Final = (
    "it was requeued, and Slurm lets it wait for about two minutes, which `relight restart` ends"
)
_FAMILIES: Final[Mapping[str, str]] = {
    "ReqNodeNotAvail": "nodes that it needs are not available, or reserved",
    "Nodes required for job are DOWN": "nodes that it needs are down, draining or reserved",
    "QOS": "a limit of its quality of service is reached",
    "Assoc": "a limit of its account is reached",
    "Max": "a limit of its account or quality of service is reached",
}


def waits_for(job: QueuedJob, now: float, *, began: bool) -> str | None:
    """Why a job does not run, with the start that Slurm expects; None when it does not wait.

    ``began`` says that an attempt of it, or of a task of it, has begun before.
    """
    if job.state is JobState.SUSPENDED:
        return "Slurm has suspended it"
    if job.state is not JobState.PENDING:
        return None
    expected = f"; expected start: {_moment(job.start_time, now)}" if job.start_time else ""
    requeued = began and job.reason == BEGIN_TIME
    sentence = _REQUEUED if requeued else _sentence(job.reason)
    return f"{sentence} ({job.reason}){expected}"


def waits_within(progress: Mapping[str, object], now: float) -> str | None:
    """What a job that runs waits for, by its progress file, and for how long."""
    wait = progress.get("wait")
    if not isinstance(wait, Mapping) or not isinstance(since := wait.get("since"), float):
        return None
    return f"{wait.get('what')}, for {max(0.0, now - since):.0f} s"


def _sentence(reason: str) -> str:
    if reason in _SENTENCES:
        return _SENTENCES[reason]
    return next(
        (text for beginning, text in _FAMILIES.items() if reason.startswith(beginning)),
        "Slurm gives a reason that relight does not know",
    )


def _moment(time: float, now: float) -> str:
    moment, today = datetime.fromtimestamp(time), datetime.fromtimestamp(now)
    return f"{moment:%H:%M}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M}"
