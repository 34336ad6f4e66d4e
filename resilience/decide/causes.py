"""Why ranks stop or fail."""

from __future__ import annotations

from enum import StrEnum


class StopCause(StrEnum):
    """Why somebody wants the ranks to stop, as far as the scheduler can tell."""

    PREEMPTED = "preempted"
    TIME_LIMIT = "time limit"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"  # the scheduler restarts this very job by itself
    SIGNALLED = "signalled"  # the job goes on: somebody sent a signal to a process
    UNKNOWN = "unknown"


class FaultCause(StrEnum):
    """Why a generation failed."""

    KILLED = "killed"
    CRASHED = "crashed"
    USER_ERROR = "user error"
    DISK_FULL = "disk full"
    EXITED = "exited"
    SELF_STOPPED = "stopped itself"
    NODE_SUSPECT = "node suspect"
    NODE_DOWN = "node down"
    START_FAILED = "start failed"
    CHECKPOINT_DAMAGED = "checkpoint damaged"
    SUPERVISOR_LOST = "supervisor lost"
