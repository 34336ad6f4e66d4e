"""The machine's step, with its promises looked at each time: every test of decisions uses it."""

from __future__ import annotations

import json

from relight.resilience.decide import machine
from relight.resilience.decide.actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    SaveAndStop,
    StartRanks,
    Withdraw,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.codec import event_from_json, to_json
from relight.resilience.decide.events import AllocationArranged, AttemptStarted, Event, NodeDegraded
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State

Decision = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, policy: Policy, now: float) -> Decision:
    """As ``machine.step``.

    Raises:
        AssertionError: a promise is broken.
    """
    decision = machine.step(state, event, policy, now)
    after, actions = decision
    assert decision == machine.step(state, event, policy, now), "the same again, always"
    assert event == event_from_json(type(event).__name__, json.loads(json.dumps(to_json(event))))
    assert all(action.reason for action in actions), "every order says why"
    assert after.committed_step >= state.committed_step
    _one_authority(state, after, actions)
    _fit_nodes(state, after, actions, policy)
    _the_end_is_the_end(state, event, after, actions)
    _a_cancel_is_final(event, after, actions)
    _a_bad_node_costs_no_step(state, event, actions)
    return decision


def _one_authority(state: State, after: State, actions: tuple[Action, ...]) -> None:
    """Ranks here, a new allocation, or the end: never two of them."""
    ways = [one for one in actions if isinstance(one, StartRanks | RequestAllocation | Finish)]
    assert len(ways) <= 1
    for way in ways:
        if isinstance(way, StartRanks):
            assert after.phase is Phase.STARTING
        if isinstance(way, RequestAllocation):
            assert after.phase is (Phase.STOPPING if way.early else Phase.MOVING)
            known = set(state.avoided) if state.arranged is not None else set()
            assert state.arranged is None or set(way.exclude) - known, "asked for twice"
            assert not way.early or not state.asked


def _fit_nodes(state: State, after: State, actions: tuple[Action, ...], policy: Policy) -> None:
    for order in actions:
        if isinstance(order, StartRanks):
            assert not set(order.nodes) & set(after.excluded_nodes)
            assert set(order.nodes) <= set(after.nodes)
            assert 1 <= len(order.nodes) <= policy.within(after.nodes).nodes
            assert order.generation == after.generation
            same_attempt = state.attempt == after.attempt
            assert not same_attempt or order.generation == state.generation + 1


def _the_end_is_the_end(
    state: State, event: Event, after: State, actions: tuple[Action, ...]
) -> None:
    finished = [action for action in actions if isinstance(action, Finish)]
    assert not finished or (after.phase is Phase.ENDED and actions[-1] is finished[0])
    if after.phase is Phase.ENDED:
        assert finished or state.phase is Phase.ENDED
    if state.phase is Phase.ENDED and not isinstance(event, AttemptStarted):
        late = isinstance(event, AllocationArranged) and state.asked
        taken_back = [action for action in actions if isinstance(action, Withdraw)]
        assert (after.phase, list(actions)) == (Phase.ENDED, taken_back)
        assert len(taken_back) == int(late)


def _a_cancel_is_final(event: Event, after: State, actions: tuple[Action, ...]) -> None:
    if after.stop is None or after.stop.cause is not StopCause.CANCELLED:
        return
    for action in actions:
        assert not isinstance(action, StartRanks | RequestAllocation), event
        assert not isinstance(action, Finish) or action.outcome is not Outcome.RESTARTING


def _a_bad_node_costs_no_step(state: State, event: Event, actions: tuple[Action, ...]) -> None:
    """While it works it is left with a save, or not at all; a spare is left at once."""
    if not isinstance(event, NodeDegraded):
        return
    for order in actions:
        assert isinstance(order, SaveAndStop | ExcludeNode), "it kills no rank and ends no run"
        assert not isinstance(order, SaveAndStop) or event.can_save
        assert not isinstance(order, ExcludeNode) or event.node not in state.active
