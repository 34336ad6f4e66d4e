"""Suspects that are asked: what their answers change, and what happens when none comes. Pure.

A dead node is known for dead only after many seconds, which is how long it takes a command to fail.
Where other nodes are there nobody waits for that: the ranks start on them, and the answer decides
only whether the node is ever used again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .actions import ProbeNodes
from .budgets import charge
from .causes import FaultCause
from .events import NodesProbed, ProbeUnanswered
from .policy import Policy
from .rules import Budget
from .state import Phase, State
from .ways_back import Decision, cause_of_fault, come_back, exclude, start

_NAMED: Final = 4  # nodes in one sentence
# Causes whose suspects have an agent that speaks: they live, and are only slow to answer.
_SPEAKING: Final = (FaultCause.HANG, FaultCause.FILESYSTEM)


def ask(state: State, nodes: tuple[str, ...], reason: str, *, work: bool = False) -> Decision:
    """Nothing starts before they have answered, or others can take their place."""
    order = ProbeNodes(nodes=nodes, reason=reason, work=work)
    return replace(state, phase=Phase.PROBING, probed=nodes), (order,)


def nodes_probed(state: State, event: NodesProbed, policy: Policy, now: float) -> Decision:
    answers = {*event.answered, *event.silent, *event.failed}
    if state.phase is not Phase.PROBING or not answers.issuperset(state.probed):
        return _answered_late(state, event)
    state, excluded = exclude(state, event.silent, FaultCause.NODE_DOWN.value)
    state, failed = exclude(state, event.failed, cause_of_fault(state))
    if state.fault is None and state.stop is None:  # asked after the preflight: nothing has failed
        state = charge(state, Budget.NODE) if excluded else state
        state, more = start(state, policy, now, "preflight is done")
    else:
        state, more = come_back(_with_rebooted(state, event.rebooted), policy, now)
    return state, (*excluded, *failed, *more)


def _with_rebooted(state: State, nodes: tuple[str, ...]) -> State:
    """Whose loss has taken the others along: the first that was noticed need not be it."""
    if state.fault is None or not nodes:
        return state
    named = ", ".join(nodes[:_NAMED])
    return replace(
        state, fault=replace(state.fault, evidence=f"{state.fault.evidence}; rebooted: {named}")
    )


def probe_unanswered(state: State, event: ProbeUnanswered, policy: Policy, now: float) -> Decision:
    """Go on without them where enough others are there; who answers later may be used again."""
    fault, others = state.fault, set(state.healthy).difference(event.nodes)
    others -= {one.node for one in state.last_choice}
    waits = state.phase is Phase.PROBING and set(event.nodes) <= set(state.suspects)
    if not waits or fault is None or fault.cause in _SPEAKING or state.stop is not None:
        return state, ()
    if len(others) < policy.nodes:
        return state, ()
    evidence = f"it has not answered for {event.waited_s:.0f} s"
    for node in event.nodes:
        state = state.chosen_last(node, FaultCause.NODE_SUSPECT, evidence)
    return come_back(state, policy, now, Budget.NODE)


def _answered_late(state: State, event: NodesProbed) -> Decision:
    """Ranks that run by now are not disturbed, but none starts again where nobody answered."""
    left = {one.node for one in state.last_choice}  # some for another reason, too
    silent = {
        node: evidence
        for node, evidence in event.silent.items()
        if node in left and node not in state.active
    }
    cleared = _suspects_left(state).intersection(event.answered)
    if cleared:
        still = tuple(one for one in state.last_choice if one.node not in cleared)
        state = replace(state, last_choice=still)
    return exclude(state, silent, FaultCause.NODE_DOWN.value) if silent else (state, ())


def for_preflight(state: State, policy: Policy) -> tuple[str, ...]:
    """Without those that have answered nobody, where others are enough: it would wait for them."""
    left = _suspects_left(state)
    others = tuple(node for node in state.healthy if node not in left)
    return others if len(others) >= policy.nodes else state.healthy


def _suspects_left(state: State) -> set[str]:
    return {one.node for one in state.last_choice if one.cause == FaultCause.NODE_SUSPECT.value}


def gone(state: State) -> tuple[str, ...]:
    """The nodes that the end of the attempt must not wait for: they have answered nobody, or were
    not asked. Our own is up, though once lost."""
    down = {one.node for one in state.excluded if one.cause == FaultCause.NODE_DOWN.value}
    silent = down | _suspects_left(state)
    return tuple(node for node in state.nodes if node in silent and node != state.batch_node)


def not_asked(state: State) -> State:
    """The allocation ends before its suspects are asked: the next one does without them.

    When all are suspects it is not the nodes.
    """
    if set(state.suspects) >= set(state.active):
        return state
    for node in state.suspects:
        state = state.chosen_last(node, FaultCause.NODE_SUSPECT, "there was no time to ask it")
    return state
