"""A new allocation: asked for, and what the scheduler answers. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..exit_codes import EXIT_RESTART, EXIT_STOP
from .actions import Outcome, RequestAllocation
from .budgets import charge_attempt
from .causes import StopCause
from .degrade import stay
from .events import AllocationArranged, AllocationRefused
from .policy import Policy
from .state import Phase, State, weakest_first
from .ways_back import (
    Decision,
    cause_text,
    finish,
    move,
    out_of_budget,
    restarting,
    to_avoid,
    withdraw,
)


def ask_early(state: State, policy: Policy, now: float) -> Decision:
    """Before an end of the allocation that is known, a successor is sent at once.

    Ranks that save until they are killed would leave no time for it, and the run would not go on.
    One is enough, however often the reason to stop changes.
    """
    stop = state.stop
    if stop is None or stop.cause not in (StopCause.TIME_LIMIT, StopCause.PREEMPTED):
        return state, ()
    if state.asked or state.arranged is not None:
        return state, ()
    spent = out_of_budget(charge_attempt(state), policy, now)
    if policy.script or policy.restart not in ("auto", "successor") or spent is not None:
        return state, ()
    reason = f"before the ranks stop: {stop.cause.value}"
    order = RequestAllocation(exclude=to_avoid(state), reason=reason, early=True)
    return replace(state, asked=True, avoided=order.exclude), (order,)


def allocation_refused(
    state: State, event: AllocationRefused, policy: Policy, now: float
) -> Decision:
    early, state = state.asked, replace(state, asked=False)
    if state.phase is not Phase.MOVING:
        return state, ()  # it is asked for again once the ranks have stopped
    reason = f"no new allocation: {event.reason}"
    if state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        return finish(state, Outcome.CANCELLED, EXIT_STOP, state.stop.cause.value, reason)
    if state.arranged is not None:  # it only may start on nodes that had to be left
        return restarting(state, state.arranged)
    stayed = stay(state, policy, now, reason)
    if stayed is not None:
        return stayed
    if event.transient:  # the scheduler may bring the run back; a verdict would forbid that
        return finish(state, Outcome.INTERRUPTED, EXIT_RESTART, cause_text(state), reason)
    if early:  # a requeue may be possible
        return move(state, policy, now, reason)
    return finish(state, Outcome.STOPPED, EXIT_STOP, cause_text(state), reason)


def allocation_arranged(state: State, event: AllocationArranged) -> Decision:
    if state.phase is Phase.ENDED:  # the run did not wait for the answer
        return replace(state, asked=False), (withdraw(event),) if state.asked else ()
    state = replace(state, asked=False, arranged=event)
    if state.phase is not Phase.MOVING:
        return state, ()  # the ranks still save
    if state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        return finish(
            state, Outcome.CANCELLED, EXIT_STOP, state.stop.cause.value, state.stop.evidence
        )
    return restarting(state, event)


def given_again(state: State, policy: Policy) -> tuple[State, str]:
    """Take what there is when the scheduler had only nodes that this run has left before.

    Their exclusions are dropped, those on weak evidence first, as many as the run needs; gives what
    to say. The ranks do not leave them again for what is seen while they run: there is nowhere to
    go.
    """
    lacking = max(policy.least_nodes - len(state.healthy), 0)
    here = [exclusion for exclusion in state.excluded if exclusion.node in state.nodes]
    again = weakest_first(here)[:lacking]
    if not again:
        return state, ""
    kept = tuple(exclusion for exclusion in state.excluded if exclusion not in again)
    told = "; ".join(f"{exclusion.node}: {exclusion.evidence}" for exclusion in again)
    said = f"no other nodes were to be had than those left for {told}"
    again_nodes = {exclusion.node for exclusion in again}
    return replace(state, excluded=kept, kept=state.kept | again_nodes), said
