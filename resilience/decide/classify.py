"""From what a rank left behind to the cause of its end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .causes import FaultCause
from .events import RankExited, RankLost

_CRASH_SIGNALS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE"})
_TAIL_RULES: Final = (
    (re.compile(r"No space left on device|Disk quota exceeded"), FaultCause.DISK_FULL),
    (
        re.compile(r"^(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|NameError)\b"),
        FaultCause.USER_ERROR,
    ),
)
# A peer that merely lost its partner says so. It reports a fault, it did not make it.
_CASCADE: Final = re.compile(
    r"Connection closed by|Connection reset by peer|Broken pipe|ncclRemoteError"
    r"|Watchdog caught collective operation timeout|NCCL communicator was aborted"
    r"|MPI_ERR_PROC_FAILED|gloo.*(timed out|timeout|EnforceNotMet)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The root of a generation's failure, with what proves it."""

    cause: FaultCause
    rank: int | None
    node: str | None
    evidence: str
    tail: tuple[str, ...] = ()
    cascade: bool = False  # the reporter only noticed that somebody else had failed

    @property
    def weight(self) -> int:
        """How near to the root: a lost node, a killed rank, a rank's own error, an echo."""
        if self.cause is FaultCause.NODE_SUSPECT:
            return 3
        if self.cause in (FaultCause.KILLED, FaultCause.CRASHED):
            return 2
        return 0 if self.cascade else 1


def fault_of_exit(event: RankExited) -> Fault:
    """The cause of one rank's end, from its exit status and its last lines."""
    if event.signal is not None:
        cause = FaultCause.CRASHED if event.signal in _CRASH_SIGNALS else FaultCause.KILLED
        evidence = f"rank {event.rank} on {event.node} was ended by {event.signal}"
        return Fault(
            cause=cause, rank=event.rank, node=event.node, evidence=evidence, tail=event.tail
        )
    return Fault(
        cause=_cause_of_tail(event),
        rank=event.rank,
        node=event.node,
        evidence=f"rank {event.rank} on {event.node} exited with code {event.code}",
        tail=event.tail,
        cascade=any(_CASCADE.search(line) for line in event.tail),
    )


def _cause_of_tail(event: RankExited) -> FaultCause:
    for line in reversed(event.tail):
        for pattern, cause in _TAIL_RULES:
            if pattern.search(line):
                return cause
    return FaultCause.EXITED


def fault_of_loss(event: RankLost) -> Fault:
    """A silent agent makes its node a suspect; a probe decides."""
    return Fault(
        cause=FaultCause.NODE_SUSPECT,
        rank=event.rank,
        node=event.node,
        evidence=f"rank {event.rank} on {event.node}: {event.detail}",
    )


def root(known: Fault | None, new: Fault) -> Fault:
    """The nearer to the root of two faults; at equal weight the earlier one."""
    return new if known is None or new.weight > known.weight else known
