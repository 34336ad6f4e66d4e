"""What a run has been through: how long it ran, how often it failed, what a save costs. Pure.

Preemption and time limit are no failures: the ranks save before them. Nor are the program's own
mistakes, which more saves do not help against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .causes import StopCause
from .events import AttemptStarted, CheckpointCommitted, Event, RanksStarted, RanksStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """``since`` is when the ranks began to run, or their time was last added to ``ran_s``."""

    ran_s: float = 0.0
    failures: int = 0
    save_s: float | None = None  # what the last save took
    since: float | None = None


def remember(past: Past, event: Event, now: float, *, failed: bool, told: StopCause | None) -> Past:
    """The past after ``event``; ``failed`` and ``told`` are how the ranks stood before it."""
    match event:
        case RanksStarted():
            return replace(past, since=now)
        case CheckpointCommitted():
            return replace(_book(past, now), save_s=event.seconds or past.save_s)
        case RanksStopped():
            failure = failed and told in (None, StopCause.SIGNALLED, StopCause.DEGRADED)
            return _end(_book(past, now), failure=failure)
        case AttemptStarted():
            # Nobody saw the end of the last attempt. It counts when its host is down.
            return _end(past, failure=event.lost_batch_node is not None)
        case _:
            return past


def _book(past: Past, now: float) -> Past:
    if past.since is None:
        return past
    return replace(past, ran_s=past.ran_s + now - past.since, since=now)


def _end(past: Past, *, failure: bool) -> Past:
    return replace(past, failures=past.failures + (1 if failure else 0), since=None)
