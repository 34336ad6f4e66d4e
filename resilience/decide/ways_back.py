"""The ways back after the ranks have stopped, cheapest first, and the budgets that end them. Pure.

Restart in place, restart on the healthy nodes of the allocation, also fewer when the run allows it,
new allocation, stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from relight.counted import counted

from ..exit_codes import EXIT_FAILED, EXIT_RESTART, EXIT_STOP
from .actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    StartRanks,
    Withdraw,
)
from .budgets import budget_of, charge, charge_attempt, overdrawn
from .causes import StopCause, way_on
from .events import AllocationArranged
from .policy import Policy
from .rules import Budget
from .state import Exclusion, Phase, State, weakest_first

USER: Final = "user"  # as the cause of an exclusion
_SHOWN: Final = 3  # exclusions in one sentence, the newest

Decision = tuple[State, tuple[Action, ...]]


def come_back(state: State, policy: Policy, now: float, budget: Budget | None = None) -> Decision:
    """Restart inside the allocation if the budgets allow: that of the failure, unless given."""
    if state.stop is not None:  # the job itself goes on
        why = "before a node fails" if state.stop.cause is StopCause.DEGRADED else "on a signal"
        reason = f"saved {why}; the allocation is still ours ({state.stop.evidence})"
        state = replace(state, stop=None)
        if state.fault is None:
            return start(state, policy, now, reason)
    budget = budget or budget_of(state)
    state = charge(state, budget)
    spent = overdrawn(state, budget, policy)
    if spent is not None:
        reason = f"{spent}; last: {_reasons(state)}{_advice(state)}"
        if budget is Budget.STOP:
            return finish(state, Outcome.STOPPED, EXIT_STOP, cause_text(state), reason)
        code = EXIT_FAILED if state.fault is None else state.fault.exit_code
        return finish(state, Outcome.FAILED, code, cause_text(state), reason)
    stopped = out_of_budget(state, policy, now)
    if stopped is not None:
        return finish(state, Outcome.STOPPED, EXIT_STOP, cause_text(state), stopped)
    delay_s = 0.0 if budget is Budget.NODE else policy.backoff_s(state.idle_restarts)
    return start(state, policy, now, f"restart in the allocation: {_reasons(state)}", delay_s)


def start(state: State, policy: Policy, now: float, reason: str, delay_s: float = 0.0) -> Decision:
    """Start ranks on healthy nodes of the allocation; ask for others when they do not suffice."""
    if len(state.healthy) < policy.least_nodes:
        lacking = f"healthy nodes: {len(state.healthy)}, needed: {policy.least_nodes}"
        return move(state, policy, now, f"{lacking}; {_reasons(state)}")
    active = _placed(state, policy)
    if len(active) < policy.nodes:
        reason = f"{reason}; on {len(active)} of {policy.nodes} nodes, no other is there"
    for one in state.last_choice:
        passed_over = one.node in state.healthy and one.node not in active
        if passed_over and one.evidence not in reason:
            reason = f"{reason}; another node takes the place of {one.node}: {_of(one)}"
    generation = state.generation + 1
    started = replace(
        state,
        phase=Phase.STARTING,
        generation=generation,
        active=active,
        done=frozenset(),
        left_early=frozenset(),
        told_to_save=False,
        fault=None,
        alike=0,
        alike_elsewhere=False,
        unsaved=None,
        saved_step=-1,
        spoilt=None,
        witnesses=frozenset(),
        suspects=(),
    )
    order = StartRanks(
        generation=generation,
        nodes=active,
        delay_s=delay_s,
        committed_step=state.committed_step,
        reason=reason,
    )
    return started, (order,)


def _placed(state: State, policy: Policy) -> tuple[str, ...]:
    """The nodes of the next generation, in the order of its ranks: that of the allocation.

    With ``policy.keep_places`` those that have carried ranks keep theirs; others fill the holes.
    """
    chosen = set(state.healthy[: policy.nodes])
    in_order = tuple(node for node in state.nodes if node in chosen)
    if not policy.keep_places or len(in_order) != len(state.active):
        return in_order
    new = iter([node for node in in_order if node not in state.active])
    return tuple(node if node in chosen else next(new) for node in state.active)


def leave(state: State, policy: Policy, now: float) -> Decision:
    """The allocation ends: go on in another one, or not."""
    assert state.stop is not None
    cause, evidence = state.stop.cause, state.stop.evidence
    if cause is StopCause.CANCELLED:
        return finish(state, Outcome.CANCELLED, EXIT_STOP, cause.value, evidence)
    if cause is not StopCause.HELD:  # the user's wish is no failure
        state = charge_attempt(state)
    if cause is StopCause.UNKNOWN:
        reason = f"nobody said why, so nothing is restarted on our word ({evidence})"
        return finish(state, Outcome.INTERRUPTED, EXIT_RESTART, cause.value, reason)
    return move(state, policy, now, f"{cause.value}: {evidence}")


def move(state: State, policy: Policy, now: float, reason: str) -> Decision:
    if policy.restart == "never":
        return finish(
            state,
            Outcome.STOPPED,
            EXIT_STOP,
            cause_text(state),
            f"restart.mode is never; {reason}",
        )
    stopped = out_of_budget(state, policy, now)
    if stopped is not None:
        return finish(state, Outcome.STOPPED, EXIT_STOP, cause_text(state), stopped)
    if state.arranged is not None:
        return restarting(state, state.arranged)
    if state.asked:  # the answer is on its way
        return replace(state, phase=Phase.MOVING), ()
    return _ask(state, reason)


def _ask(state: State, reason: str) -> Decision:
    for one in state.last_choice:
        if one.node not in state.excluded_nodes:
            reason = f"{reason}; without {one.node}: {_of(one)}"
    order = RequestAllocation(exclude=to_avoid(state), reason=reason)
    return replace(state, phase=Phase.MOVING, avoided=order.exclude), (order,)


def to_avoid(state: State) -> tuple[str, ...]:
    """When too many are excluded, the first are forgotten: weak evidence is, then the oldest."""
    last = {one.node for one in state.last_choice} - set(state.excluded_nodes)
    return (*sorted(last), *(exclusion.node for exclusion in weakest_first(state.excluded)))


def restarting(state: State, arranged: AllocationArranged) -> Decision:
    """This attempt ends, and the run goes on in the next, which first hears of more bad nodes."""
    if more := sorted(set(to_avoid(state)) - set(state.avoided)):
        return _ask(
            state, f"job {arranged.job_id} was sent before {', '.join(more)} had to be left"
        )
    outcome = Outcome.INTERRUPTED if arranged.mode == "by hand" else Outcome.RESTARTING
    reason = way_on(arranged.mode, arranged.job_id)
    return finish(state, outcome, EXIT_RESTART, cause_text(state), reason)


def out_of_budget(state: State, policy: Policy, now: float) -> str | None:
    if state.idle_restarts > policy.no_progress:
        idle = f"{counted(state.idle_restarts, 'restart')} and no newer checkpoint"
        return f"{idle}; last: {_reasons(state)}"
    if state.node_failures > policy.node_failures:
        lost = f"{counted(state.node_failures, 'restart')} because of nodes and no newer checkpoint"
        return f"{lost}; last: {_reasons(state)}"
    if state.blind_attempts > policy.blind_attempts:
        return f"{counted(state.blind_attempts, 'attempt')}, and nothing was ever saved"
    if policy.walltime_s is not None and state.first_started is not None:
        spent_s = now - state.first_started
        if spent_s > policy.walltime_s:
            return (
                f"the run has taken {spent_s:.0f} s of restart.walltime {policy.walltime_s:.0f} s"
            )
    return None


def exclude(state: State, bad: Mapping[str, str], cause: str) -> Decision:
    known = set(state.excluded_nodes)
    new = {node: evidence for node, evidence in bad.items() if node not in known}
    exclusions = tuple(
        Exclusion(node=node, cause=cause, evidence=evidence) for node, evidence in new.items()
    )
    orders = tuple(
        ExcludeNode(node=node, cause=cause, reason=evidence) for node, evidence in new.items()
    )
    return replace(state, excluded=(*state.excluded, *exclusions)), orders


def finish(
    state: State, outcome: Outcome, exit_code: int, cause: str, reason: str
) -> tuple[State, tuple[Action, ...]]:
    tail = state.fault.tail if state.fault is not None else ()
    order = Finish(outcome=outcome, exit_code=exit_code, cause=cause, reason=reason, tail=tail)
    ended = replace(state, phase=Phase.ENDED, arranged=None)
    if outcome in (Outcome.RESTARTING, Outcome.INTERRUPTED):
        return replace(ended, asked=False), (order,)
    if state.arranged is None:
        return ended, (order,)
    return ended, (withdraw(state.arranged), order)


def withdraw(arranged: AllocationArranged) -> Withdraw:
    return Withdraw(mode=arranged.mode, job_id=arranged.job_id, reason="the run does not go on")


def cause_text(state: State) -> str:
    if state.stop is not None and state.stop.cause is not StopCause.SIGNALLED:
        return state.stop.cause.value
    return cause_of_fault(state)


def cause_of_fault(state: State) -> str:
    if state.fault is not None:
        return state.fault.cause.value
    return state.excluded[-1].cause if state.excluded else "unknown"


def _advice(state: State) -> str:
    return f"; {state.fault.advice}" if state.fault is not None and state.fault.advice else ""


def _of(one: Exclusion) -> str:
    return f"{one.cause}, {one.evidence}"


def _reasons(state: State) -> str:
    if state.fault is not None:
        return state.fault.evidence
    if state.stop is not None:
        return state.stop.evidence
    last = [f"{exclusion.node}: {exclusion.evidence}" for exclusion in state.excluded[-_SHOWN:]]
    more = len(state.excluded) - len(last)
    return "; ".join([*last, *([f"and {more} more"] if more else [])]) or "no evidence"
