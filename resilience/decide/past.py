"""What a run has been through: how long it ran, how often it failed, what a save costs. Pure.

Preemption and time limit are no failures: the ranks save before them. Nor are the program's own
mistakes, which more saves do not help against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from .causes import StopCause
from .events import AttemptStarted, CheckpointCommitted, Event, RanksStarted, RanksStopped

_SAVES: Final = 5  # one alone may be odd: the last one of an attempt, one beside others' writing
# While a save is written beside them, steps are taken to be so much slower. Nobody publishes how
# much they are: it keeps a file system from being written to without a pause for nothing.
_SLOWER: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCost:
    """``seconds`` until it was durable; for ``stall_s`` of them no step was done."""

    seconds: float
    stall_s: float

    @property
    def cost_s(self) -> float:
        """The work that it took the time of."""
        stall_s = min(self.stall_s, self.seconds)
        return stall_s + _SLOWER * (self.seconds - stall_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """``since`` is when the ranks began to run, or their time was last added to ``ran_s``.

    ``saves`` are the last ones, the newest at the end.
    """

    ran_s: float = 0.0
    failures: int = 0
    saves: tuple[SaveCost, ...] = ()
    since: float | None = None

    @property
    def save_s(self) -> float | None:
        """Until a save is durable, usually."""
        return median(one.seconds for one in self.saves) if self.saves else None

    @property
    def cost_s(self) -> float | None:
        """The work that a save takes the time of, usually."""
        return median(one.cost_s for one in self.saves) if self.saves else None


def remember(past: Past, event: Event, now: float, *, failed: bool, told: StopCause | None) -> Past:
    """The past after ``event``; ``failed`` and ``told`` are how the ranks stood before it."""
    match event:
        case RanksStarted():
            return replace(past, since=now)
        case CheckpointCommitted():
            return _book(replace(past, saves=_with(past.saves, event)), now)
        case RanksStopped():
            failure = failed and told in (None, StopCause.SIGNALLED, StopCause.DEGRADED)
            return _end(_book(past, now), failure=failure)
        case AttemptStarted():
            # Nobody saw the end of the last attempt. It counts when its host is down.
            return _end(past, failure=event.lost_batch_node is not None)
        case _:
            return past


def _with(saves: tuple[SaveCost, ...], event: CheckpointCommitted) -> tuple[SaveCost, ...]:
    if not event.seconds:
        return saves
    # Who does not tell for how long steps waited, waited for all of it.
    stall_s = event.seconds if event.stall_s is None else event.stall_s - event.behind_s
    return (*saves, SaveCost(seconds=event.seconds, stall_s=max(0.0, stall_s)))[-_SAVES:]


def _book(past: Past, now: float) -> Past:
    if past.since is None:
        return past
    return replace(past, ran_s=past.ran_s + now - past.since, since=now)


def _end(past: Past, *, failure: bool) -> Past:
    return replace(past, failures=past.failures + (1 if failure else 0), since=None)
