"""A node that turns bad while ranks run on it: they save the next step and go on without it. Pure.

Such a node still works, so to leave it costs no step, and never ends a run: where no other node can
be had, a bad one is better than none. Whatever stops the ranks, they do not start on it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .actions import SaveAndStop
from .budgets import charge
from .causes import StopCause
from .events import NodeDegraded
from .policy import Policy
from .rules import Budget
from .state import Exclusion, Phase, State, Stop
from .ways_back import Decision, exclude, out_of_budget, start

DEGRADED: Final = "degraded"  # as the cause of an exclusion
_AT_WORK: Final = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.PROBING)


def node_degraded(state: State, event: NodeDegraded, policy: Policy, now: float) -> Decision:
    """Leave it at once when it carries no ranks, with a save when it does and they can."""
    free = set(state.nodes) - set(state.excluded_nodes)
    if state.phase not in _AT_WORK or event.node not in free:
        return state, ()
    if event.node not in state.active:
        return exclude(state, {event.node: event.evidence}, DEGRADED)
    state = _noted(state, event)
    moves = policy.on_degrade == "move" and event.can_save and state.phase is Phase.RUNNING
    # While saves fail a move would cost what was done since the last one.
    if not moves or state.unsaved is not None or not _can_leave(state, policy, now):
        return state, ()
    evidence = f"{event.node} turns bad: {event.evidence}"
    stop = Stop(cause=StopCause.DEGRADED, kill_at=None, evidence=evidence)
    order = SaveAndStop(cause=stop.cause, kill_at=stop.kill_at, reason=stop.evidence)
    return replace(state, stop=stop, phase=Phase.STOPPING), (order,)


def leave_degraded(state: State, policy: Policy, now: float) -> Decision:
    """The ranks have stopped, for whatever reason: start none on a node that turned bad."""
    if not _can_leave(state, policy, now):
        return state, ()
    if state.stop is not None and state.stop.cause is StopCause.DEGRADED:
        state = charge(state, Budget.NODE)
    return exclude(replace(state, degraded=()), _bad(state), DEGRADED)


def go_on(state: State) -> Decision:
    """The ranks did not agree on a step to save: they run, and the node stays known."""
    return replace(state, phase=Phase.RUNNING, stop=None), ()


def stay(state: State, policy: Policy, now: float, reason: str) -> Decision | None:
    """No other node can be had: back to those that are bad; None when they would not do either."""
    back = {one.node for one in state.excluded if one.cause == DEGRADED} & set(state.nodes)
    rest = tuple(one for one in state.excluded if one.node not in back)
    stayed = replace(state, excluded=rest, kept=state.kept | back)
    if state.stop is not None or not back or len(stayed.healthy) < policy.least_nodes:
        return None
    return start(stayed, policy, now, f"a node that turns bad is better than none; {reason}")


def _noted(state: State, event: NodeDegraded) -> State:
    others = tuple(one for one in state.degraded if one.node != event.node)
    one = Exclusion(node=event.node, cause=DEGRADED, evidence=event.evidence)
    return replace(state, degraded=(*others, one))


def _bad(state: State) -> dict[str, str]:
    """The nodes to leave, with the evidence: those that turned bad, and could be replaced."""
    return {one.node: one.evidence for one in state.degraded if one.node not in state.kept}


def _can_leave(state: State, policy: Policy, now: float) -> bool:
    """Whether there is a node to leave, and the run goes on without it, as far as can be known."""
    bad = _bad(state)
    if not bad or out_of_budget(charge(state, Budget.NODE), policy, now) is not None:
        return False
    if len([node for node in state.healthy if node not in bad]) >= policy.least_nodes:
        return True
    return policy.on_degrade == "move" and policy.restart != "never"
