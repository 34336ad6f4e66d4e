"""From what a rank left behind to the cause of its end."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..exit_codes import EXIT_FAILED
from .causes import FaultCause
from .events import LossNotFinite, RankExited, RankLost, SaveFailed
from .rules import Blame, Budget, Rule, first_match, without_rank

# No restart cures these, and no other node.
_AGAIN = "then go on from the newest checkpoint"
FULL: Final[Mapping[int | None, tuple[FaultCause, str]]] = {
    errno.ENOSPC: (FaultCause.DISK_FULL, f"make room, {_AGAIN}"),
    errno.EDQUOT: (FaultCause.QUOTA, f"remove files or ask for a larger quota, {_AGAIN}"),
}
# A file system that is away for a while: not mounted, or without its server, it may refuse.
_OUTAGE: Final = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.EIO,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EAGAIN,
        errno.EROFS,
    }
)
# The same everywhere will be the same again; at start-up even a second try is in vain.
_ALIKE: Final = {Budget.COUNTED: Budget.ONCE, Budget.START_UP: Budget.START_UP_ALIKE}
# Ranks that were killed while they did the same have their last lines in common, too.
_ERROR: Final = re.compile(r"(Error|Exception)\b|(?i:\b(error|fatal|failed|abort(ed)?)\b)")
_NUMBER: Final = re.compile(r"(0x)?[0-9a-f]*[0-9][0-9a-f]*")
_QUOTED: Final = 200  # characters of the line that proves a cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The root of a generation's failure, with what proves it and the rule that says so."""

    cause: FaultCause
    rank: int | None
    node: str | None
    evidence: str
    tail: tuple[str, ...] = ()
    signalled: bool = False
    cascade: bool = False  # the reporter only noticed that somebody else had failed
    blame: Blame = Blame.NONE
    budget: Budget = Budget.COUNTED
    advice: str = ""
    exit_code: int = EXIT_FAILED  # of the job, when it is the end of the run
    line: str = ""  # what ranks that fail alike have in common; numbers do not count

    @property
    def weight(self) -> int:
        """How near to the root: a bad node, a lost one, a killed rank, its own error, an echo."""
        if self.cascade:
            return 0
        if self.blame is Blame.NODE:
            return 4
        if self.cause in (FaultCause.NODE_SUSPECT, FaultCause.HANG):  # whichever came first
            return 3
        return 2 if self.signalled else 1


def fault_of_exit(event: RankExited, rules: Sequence[Rule]) -> Fault:
    """The cause of one rank's end, from its exit status and its last lines."""
    how = f"ended by {event.signal}" if event.signal else f"exited with code {event.code}"
    seen = f"rank {event.rank} on {event.node} {how}"
    match = first_match(rules, event)
    if match is None:
        return Fault(
            cause=FaultCause.EXITED if event.signal is None else FaultCause.KILLED,
            rank=event.rank,
            node=event.node,
            evidence=seen,
            tail=event.tail,
            signalled=event.signal is not None,
            line=plain(next((line for line in reversed(event.tail) if _ERROR.search(line)), "")),
        )
    rule = match.rule
    quoted = f": {match.line.strip()[:_QUOTED]}" if match.line is not None else ""
    return Fault(
        cause=rule.cause,
        rank=event.rank,
        node=event.node,
        evidence=f"{rule.cause.value} (rule {rule.id}): {seen}{quoted}",
        tail=event.tail,
        signalled=event.signal is not None,
        cascade=rule.cascade,
        blame=rule.blame,
        budget=rule.budget,
        advice=rule.advice,
        line=plain(match.line or ""),
    )


def fault_of_script(event: RankExited, rules: Sequence[Rule]) -> Fault:
    """As of a rank; the job ends with the script's exit code, since others may depend on it.

    As a shell would say it: 128 and the signal's number for a script that was killed.
    """
    killed_by = signal.Signals[event.signal] if event.signal is not None else None
    code = event.code or EXIT_FAILED if killed_by is None else 128 + killed_by
    return replace(fault_of_exit(event, rules), exit_code=code)


def plain(line: str) -> str:
    """A line as every rank would say it: without its rank, its addresses, its times."""
    return _NUMBER.sub("#", without_rank(line).strip())


def says_the_same(fault: Fault, event: RankExited) -> bool:
    """Whether another rank has said what proves the fault, however it ended."""
    return bool(fault.line) and any(plain(line) == fault.line for line in event.tail)


def of_the_program(fault: Fault, ranks: int) -> Fault:
    """The fault, when all ranks on all nodes have failed by it: no node is to blame.

    A named cause stays. An error that no rule knows is the program's own.
    """
    unnamed = fault.cause in (FaultCause.EXITED, FaultCause.USER_ERROR)
    alike = f"{fault.evidence}; all {ranks} ranks, on all nodes, failed alike"
    return replace(
        fault,
        cause=FaultCause.USER_ERROR if unnamed else fault.cause,
        evidence=f"{alike}: it is the program" if unnamed else alike,
        blame=Blame.NONE,
        budget=_ALIKE.get(fault.budget, fault.budget),
    )


def fault_of_loss(event: RankLost) -> Fault:
    """A silent agent makes its node a suspect; a probe decides."""
    return Fault(
        cause=FaultCause.NODE_SUSPECT,
        rank=event.rank,
        node=event.node,
        evidence=f"rank {event.rank} on {event.node}: {event.detail}",
    )


def fault_of_not_finite(event: LossNotFinite, *, again: bool) -> Fault:
    """No node is blamed: what one rank has spoilt, the others have after the next step."""
    return Fault(
        cause=FaultCause.LOSS_NOT_FINITE,
        rank=event.rank,
        node=event.node,
        evidence=f"rank {event.rank} on {event.node}: {event.detail}",
        budget=Budget.ONCE if again else Budget.STOP,
        advice=f"checkpoints of step {event.since} and later may be spoilt, and are set aside",
    )


def fault_of_save(event: SaveFailed) -> Fault:
    """Why a checkpoint did not come, by what the file system said."""
    where = f" on {event.node}" if event.node is not None else ""
    evidence = f"checkpoint {event.step} failed{where}: {event.reason.rstrip('.')}"
    return replace(fault_of_errno(event.errno, evidence), node=event.node)


def fault_of_errno(number: int | None, evidence: str) -> Fault:
    """What an error of the file system says: errno(3), and those that Lustre and NFS give."""
    fault = Fault(cause=FaultCause.SAVE_FAILED, rank=None, node=None, evidence=evidence)
    if number in FULL:
        cause, advice = FULL[number]
        return replace(fault, cause=cause, budget=Budget.STOP, advice=advice)
    if number in _OUTAGE:
        return replace(fault, cause=FaultCause.FILESYSTEM, budget=Budget.FREE, blame=Blame.SUSPECT)
    return fault


def root(known: Fault | None, new: Fault) -> Fault:
    """The nearer to the root of two faults; at equal weight the earlier one."""
    return new if known is None or new.weight > known.weight else known
