"""What is done while the journal cannot be written: orders wait for their record. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from ..exit_codes import EXIT_RESTART, EXIT_STOP
from .actions import Action, Finish, Outcome, SaveAndStop, StartRanks, StopRanks
from .causes import FaultCause
from .classify import FULL
from .policy import Policy
from .state import Phase, State

_BEFORE_KILL_S: Final = 5.0
_BACK: Final = (FaultCause.FILESYSTEM, "when it is back, go on from the newest checkpoint")


def need_no_record(waiting: Sequence[Action]) -> tuple[Action, ...]:
    """Those that end ranks, with a save or without: the end of the supervisor would do it, too.

    Whoever knows nothing of them goes on from the newest checkpoint, and nothing is done twice. A
    stop stays behind a start that waits: it means those ranks.
    """
    before_a_start = takewhile(lambda order: not isinstance(order, StartRanks), waiting)
    return tuple(order for order in before_a_start if isinstance(order, SaveAndStop | StopRanks))


def must_end(state: State, waiting: Sequence[Action]) -> bool:
    """Whether the room that is kept for the end of a run is to be used now."""
    ends = state.stop is not None and state.stop.ends_allocation
    return ends or any(isinstance(order, Finish) for order in waiting)


def trains(state: State) -> bool:
    """Whether orders may wait as long as they must: the ranks run."""
    return state.phase is Phase.RUNNING


def give_up(
    state: State,
    policy: Policy,
    waiting: Sequence[Action],
    error: OSError,
    idle_s: float,
    now: float,
) -> Finish | None:
    """The end when ranks have not run for ``idle_s``, or the job is about to be killed.

    None while there is time. An end that was decided is that one; without its record no other
    allocation is asked for, since it might be asked for twice.
    """
    kill_at = state.stop.kill_at if state.stop is not None else None
    is_late = kill_at is not None and now >= kill_at - _BEFORE_KILL_S
    if trains(state) or not (is_late or idle_s >= policy.outage_s):
        return None
    decided = next((order for order in waiting if isinstance(order, Finish)), None)
    if decided is not None:
        return decided
    cause, advice = FULL.get(error.errno, _BACK)
    reason = f"the journal of this run could not be written for {idle_s:.0f} s: {error}; {advice}"
    if is_late:  # the scheduler may start this very job again: no verdict is in its way
        outcome, code = Outcome.INTERRUPTED, EXIT_RESTART
    else:
        outcome, code = Outcome.STOPPED, EXIT_STOP
    return Finish(outcome=outcome, exit_code=code, cause=cause, reason=reason)
