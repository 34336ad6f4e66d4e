"""The scheduler's answers after a new allocation was asked for. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..exit_codes import EXIT_RESTART, EXIT_STOP
from .actions import Outcome, Withdraw
from .causes import StopCause
from .degrade import stay
from .events import AllocationArranged, AllocationRefused
from .policy import Policy
from .state import State
from .ways_back import Decision, cause_text, finish


def allocation_refused(
    state: State, event: AllocationRefused, policy: Policy, now: float
) -> Decision:
    reason = f"no new allocation: {event.reason}"
    if state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        return finish(state, Outcome.CANCELLED, EXIT_STOP, state.stop.cause.value, reason)
    if event.transient:  # the scheduler may bring the run back; a verdict would forbid that
        return finish(state, Outcome.INTERRUPTED, EXIT_RESTART, cause_text(state), reason)
    stayed = stay(state, policy, now, reason)
    if stayed is not None:
        return stayed
    return finish(state, Outcome.STOPPED, EXIT_STOP, cause_text(state), reason)


def allocation_arranged(state: State, event: AllocationArranged) -> Decision:
    if state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        reason = "the run was cancelled while a new allocation was arranged"
        order = Withdraw(mode=event.mode, job_id=event.job_id, reason=reason)
        state, actions = finish(
            state, Outcome.CANCELLED, EXIT_STOP, state.stop.cause.value, state.stop.evidence
        )
        return state, (order, *actions)
    reason = f"goes on as job {event.job_id} ({event.mode})"
    return finish(state, Outcome.RESTARTING, EXIT_RESTART, cause_text(state), reason)


def given_again(state: State, policy: Policy) -> tuple[State, str]:
    """Take what there is when the scheduler had only nodes that this run has left before.

    Their exclusions are dropped, the oldest first, as many as the run needs; gives what to say. The
    ranks do not leave them again for what is seen while they run: there is nowhere to go.
    """
    lacking = max(policy.nodes - len(state.healthy), 0)
    again = [exclusion for exclusion in state.excluded if exclusion.node in state.nodes][:lacking]
    if not again:
        return state, ""
    kept = tuple(exclusion for exclusion in state.excluded if exclusion not in again)
    told = "; ".join(f"{exclusion.node}: {exclusion.evidence}" for exclusion in again)
    said = f"no other nodes were to be had than those left for {told}"
    again_nodes = {exclusion.node for exclusion in again}
    return replace(state, excluded=kept, kept=state.kept | again_nodes), said
