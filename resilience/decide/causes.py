"""Why ranks stop or fail."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

# A successor is a new job that waits for the end of this one; a requeue is this job once more. What
# has no job of its own goes on where it is, or once a person wants that.
RestartWay = Literal["successor", "requeue", "here", "by hand"]


def way_on(way: object, job_id: object) -> str:
    """How a run goes on, in words."""
    match way:
        case "here":
            return "goes on in another attempt here"
        case "by hand":
            return "waits for a person: `relight run --resume` goes on"
        case _:
            return f"goes on as job {job_id} ({way})"


class StopCause(StrEnum):
    """Why somebody wants the ranks to stop, as far as the scheduler can tell."""

    PREEMPTED = "preempted"
    TIME_LIMIT = "time limit"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"  # the scheduler restarts this very job by itself
    HELD = "held"  # the user wants the run to wait in the queue
    SIGNALLED = "signalled"  # the job goes on: somebody sent a signal to a process
    DEGRADED = "node degraded"  # likewise: a node under the ranks turned bad, and still works
    UNKNOWN = "unknown"


class FaultCause(StrEnum):
    """Why a generation failed."""

    KILLED = "killed"
    CRASHED = "crashed"
    HOST_MEMORY = "host out of memory"
    GPU_MEMORY = "GPU out of memory"
    GPU_HARDWARE = "GPU hardware"
    GPU_LOST = "GPU lost"
    GPU_MEMORY_HELD = "GPU memory held"
    COLLECTIVE_ABORTED = "collective aborted"
    NETWORK = "network"
    RENDEZVOUS = "rendezvous"
    USER_ERROR = "user error"
    LOSS_NOT_FINITE = "loss not finite"
    DISK_FULL = "disk full"
    QUOTA = "quota"
    FILESYSTEM = "filesystem outage"
    EXITED = "exited"
    SELF_STOPPED = "stopped itself"
    NODE_SUSPECT = "node suspect"
    NODE_DOWN = "node down"
    START_FAILED = "start failed"
    HANG = "hang"
    STRAGGLER = "straggler"
    SAVE_FAILED = "save failed"
    CHECKPOINT_DAMAGED = "checkpoint damaged"
    NO_PROGRESS = "no progress"
