"""Slurm's answers as values (pure): what is not understood is UNKNOWN or None, never a guess."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import Final

from relight.resilience.supervise.cluster import NodeCondition

from .hostlist import expand_nodes

_log: Final = logging.getLogger(__name__)


class JobState(StrEnum):
    """Slurm's base states that we tell apart."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"

    @property
    def live(self) -> bool:
        """Whether the job is still in Slurm's hands: it may yet run."""
        return self in _LIVE


_LIVE: Final = frozenset(
    {
        JobState.PENDING,
        JobState.CONFIGURING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.COMPLETING,
        JobState.UNKNOWN,
    }
)
# Flags that Slurm prints in place of the base state while they last (22.05: SIGNALING at the start
# of a preemption's grace, RESIZING after the loss of a node under --no-kill).
_FLAGS_OF_RUNNING: Final = frozenset({"SIGNALING", "RESIZING", "STOPPED"})
# Of squeue(1), and nothing that we need to tell apart from a state that is not known.
_OTHERS: Final = frozenset(
    {
        *("BOOT_FAIL", "DEADLINE", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"),
        *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT"),
        *("STAGE_OUT", "UPDATE_DB"),
    }
)
_JOB: Final = re.compile(r"^JobId=", re.MULTILINE)
_LEADER: Final = re.compile(r"^JobId=(\d+) HetJobId=\1 HetJobOffset=0 ")
_TASKS: Final = re.compile(r"^JobId=\d+ ArrayJobId=(\d+) ArrayTaskId=([\d,:-]+)")
_FOLLOWER: Final = re.compile(r"^JobId=(\d+) HetJobId=(?!\1 )\d+ HetJobOffset=")
_DOWN: Final = frozenset({"down", "fail", "failing", "error"})
_UP: Final = frozenset(
    {"idle", "alloc", "allocated", "mixed", "completing", "draining", "drained", "reserved"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job, from ``scontrol show job``. Times are Unix seconds, None when Slurm has none.

    Of a heterogeneous job the first component stands for it, where the batch script runs;
    ``others`` are those after it, and the times of end and preemption are the first of any.
    """

    job_id: str
    state: JobState
    reason: str
    restarts: int
    requeue: bool
    end_time: float | None
    preempt_time: float | None
    start_time: float | None = None
    time_limit: str
    partition: str
    nodes: tuple[str, ...]
    batch_host: str
    excluded: tuple[str, ...]
    required: tuple[str, ...]
    dependency: str = ""
    others: tuple[JobFacts, ...] = ()

    @property
    def components(self) -> tuple[JobFacts, ...]:
        """All of them; of a job of one kind the job."""
        return (self, *self.others)

    @property
    def all_nodes(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(one.nodes for one in self.components))


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One line of ``squeue``; ``start_time`` (Unix seconds, where it is known; an estimate while
    the job waits) and ``command`` only where they were asked for."""

    job_id: str
    state: JobState
    reason: str
    start_time: float | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """How many jobs of a user may run, and be in the queue, by account and maybe partition; None
    without a limit. Each task of an array is a job."""

    account: str
    partition: str
    running: int | None
    queued: int | None


def parse_job(text: str) -> JobFacts | None:
    """The job in the output of ``scontrol --oneliner show job``; None when it is not one job.

    Only fields whose values Slurm makes are read. JobName and what begins with Command (SubmitLine
    of 25.05 and later, Comment) are user text that may hold spaces and ``=``: they are cut out.
    """
    lines = text.splitlines()
    leader = next((line for line in lines if _LEADER.search(line)), None)
    if leader is None:
        return _parse_one(text)
    # A line feed in user text makes lines of its own.
    found = [_parse_one(line) for line in lines if line != leader and _FOLLOWER.search(line)]
    others = tuple(job for job in found if job is not None)
    job = _parse_one(leader)
    if job is None:
        return None
    ends = [one.end_time for one in (job, *others) if one.end_time is not None]
    preempted = [one.preempt_time for one in (job, *others) if one.preempt_time is not None]
    return replace(
        job,
        others=others,
        end_time=min(ends, default=None),
        preempt_time=min(preempted, default=None),
    )


def parse_array(text: str) -> list[QueuedJob]:
    """The tasks in the output of ``scontrol --oneliner show job`` of an array, named as squeue
    names them: also those that have ended, while Slurm remembers them."""
    found = ((_TASKS.search(line), _parse_one(line)) for line in text.splitlines())
    return [
        QueuedJob(f"{tasks[1]}_[{tasks[2]}]", job.state, job.reason)
        for tasks, job in found
        if tasks is not None and job is not None
    ]


def _parse_one(text: str) -> JobFacts | None:
    text = re.sub(r" JobName=.*? UserId=", " UserId=", text, count=1)
    job_id = _field(text, "JobId")
    if job_id is None or (len(_JOB.findall(text)) > 1 and "ArrayJobId=" not in text):
        return None
    text = text.partition(" Command=")[0]
    return JobFacts(
        job_id=job_id,
        state=job_state(_field(text, "JobState")),
        reason=_field(text, "Reason") or "",
        restarts=_number(_field(text, "Restarts")),
        requeue=_field(text, "Requeue") == "1",
        end_time=parse_time(_field(text, "EndTime")),
        preempt_time=parse_time(_field(text, "PreemptTime")),
        start_time=parse_time(_field(text, "StartTime")),
        time_limit=_field(text, "TimeLimit") or "",
        partition=_field(text, "Partition") or "",
        nodes=expand_nodes(_field(text, "NodeList") or ""),
        batch_host=_field(text, "BatchHost") or "",
        excluded=expand_nodes(_field(text, "ExcNodeList") or ""),
        required=expand_nodes(_field(text, "ReqNodeList") or ""),
        dependency=(_field(text, "Dependency") or "").replace("(null)", ""),
    )


def parse_queue(text: str) -> list[QueuedJob]:
    """The jobs in the output of ``squeue``, in the formats of :mod:`commands`.

    Of ``7_[1-3%2]``, how many may run at once is left out: no other command takes it so. ``7+0``,
    the first component of a heterogeneous job, stands for the job.
    """
    jobs = []
    for line in text.splitlines():
        job_id, separator, rest = line.strip().partition("|")
        state, _, rest = rest.partition("|")
        reason, _, rest = rest.partition("|")
        start, _, command = rest.partition("|")
        job_id, _, component = job_id.partition("+")
        if separator and component in ("", "0"):
            job_id = re.sub(r"%\d+(?=]$)", "", job_id)
            jobs.append(QueuedJob(job_id, job_state(state), reason, parse_time(start), command))
    return jobs


def parse_submitted(text: str) -> str | None:
    """The job id that ``sbatch --parsable`` printed (``123`` or ``123;cluster``)."""
    match = re.search(r"^(\d+)(?:;\S+)?$", text.strip(), re.MULTILINE)
    return match[1] if match else None


def parse_submission(text: str) -> str | None:
    """The job id in a line that sbatch prints, with ``--parsable`` or without."""
    match = re.match(r"Submitted batch job (\d+)", text)
    return match[1] if match else parse_submitted(text)


def parse_node_states(text: str) -> dict[str, str]:
    """Node name to Slurm's state word; a node of several partitions is listed once for each."""
    states = {}
    for line in text.splitlines():
        name, separator, state = line.strip().partition("|")
        if separator:
            states[name] = state.strip().lower()
    return states


def parse_boot_times(text: str) -> dict[str, float]:
    """Unix time by node, from ``scontrol --oneliner show node``."""
    found = ((_field(line, "NodeName"), _field(line, "BootTime")) for line in text.splitlines())
    times = {name: parse_time(time) for name, time in found if name is not None}
    return {name: time for name, time in times.items() if time is not None}


def node_condition(state: str) -> NodeCondition:
    """Slurm's state word, judged. A star says that the node does not answer."""
    base = state.rstrip("*~#!%$@^-+")
    if base in _DOWN:
        return "down"
    return "up" if base in _UP and not state.endswith("*") else "unknown"


def can_be_allocated(state: str) -> bool:
    """Whether a node in this state will take a job now or when it becomes free."""
    return node_condition(state) == "up" and not state.startswith("drain")


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config`` as a mapping."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def parse_partitions(text: str) -> list[Mapping[str, str]]:
    """``scontrol --oneliner show partition``: each partition's fields."""
    return [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in text.splitlines()
        if line.startswith("PartitionName=")
    ]


def parse_limits(text: str) -> list[UserLimits]:
    """The lines of ``sacctmgr show associations``, in the format of :mod:`commands`."""
    lines = (line.split("|") for line in text.splitlines())
    return [
        UserLimits(line[0], line[1], _limit(line[2]), _limit(line[3]))
        for line in lines
        if len(line) == 4
    ]


def parse_time(text: str | None) -> float | None:
    """Slurm's local time stamp as Unix time; None for ``Unknown``, ``None`` and the like."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def parse_seconds(text: str | None) -> int | None:
    """``30 sec`` or ``30`` as seconds; None for anything else."""
    match = re.match(r"(\d+)(?:\s*sec)?$", text.strip()) if text else None
    return int(match[1]) if match else None


def job_state(text: str | None) -> JobState:
    """A state word; squeue adds flags and ``CANCELLED by 1000`` says who."""
    words = (text or "").replace("+", " ").split()
    if not words:
        return JobState.UNKNOWN
    if words[0] in _FLAGS_OF_RUNNING:
        return JobState.RUNNING
    try:
        return JobState(words[0])
    except ValueError:
        if words[0] not in _OTHERS:
            _warn_of(words[0])
        return JobState.UNKNOWN


@cache
def _warn_of(word: str) -> None:
    """Once for each word: a list of jobs may be full of it."""
    _log.warning("Slurm says %r of a job, which relight does not know: it counts as UNKNOWN", word)


def _field(text: str, name: str) -> str | None:
    match = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return match[1] if match else None


def _limit(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
