"""A slow node: nothing is stopped for it, and the next start takes another one."""

from __future__ import annotations

from promises import step

from relight.resilience.decide.actions import Action, RequestAllocation, StartRanks
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    RankExited,
    RanksStarted,
    RanksStopped,
    RanksStraggled,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import State

POLICY = Policy(nodes=2, tasks_per_node=1, preflight=False)
STARTED = RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2)
SLOW = RanksStraggled(generation=1, ranks=(1,), node="n2", detail="twice the time", by_node=True)
KILLED: list[Event] = [
    RankExited(generation=1, rank=0, node="n1", signal="SIGKILL"),
    RanksStopped(generation=1),
]


def tell(
    events: list[Event], *nodes: str, policy: Policy = POLICY
) -> tuple[State, tuple[Action, ...]]:
    begin = AttemptStarted(
        attempt="7.0", job_id="7", restart_count=0, nodes=nodes, batch_node=nodes[0]
    )
    state, actions = step(State(), begin, policy, 0.0)
    for event in events:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


def nodes_of(actions: tuple[Action, ...]) -> tuple[str, ...]:
    order = actions[-1]
    assert isinstance(order, StartRanks), actions
    return order.nodes


def test_the_ranks_go_on() -> None:
    _, actions = tell([STARTED, SLOW], "n1", "n2", "n3")
    assert actions == ()


def test_the_next_start_takes_a_spare_in_its_place() -> None:
    _, actions = tell([STARTED, SLOW, *KILLED], "n1", "n2", "n3")
    assert nodes_of(actions) == ("n1", "n3")


def test_without_a_spare_it_is_used_again_and_costs_no_allocation() -> None:
    _, actions = tell([STARTED, SLOW, *KILLED], "n1", "n2")
    assert nodes_of(actions) == ("n1", "n2")


def test_a_new_allocation_avoids_it_and_forgets_it_first() -> None:
    requeued = StopRequested(cause=StopCause.REQUEUED, kill_at=9.0, evidence="x")
    _, actions = tell([STARTED, SLOW, requeued, RanksStopped(generation=1)], "n1", "n2")
    order = actions[-1]
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2",)


def test_slow_work_is_not_held_against_a_node() -> None:
    work = RanksStraggled(generation=1, ranks=(1,), node="n2", detail="x", by_node=False)
    older = RanksStraggled(generation=0, ranks=(1,), node="n2", detail="x", by_node=True)
    state, _ = tell([STARTED, work, older], "n1", "n2", "n3")
    assert not state.slow
    alone = Policy(nodes=1, tasks_per_node=2, preflight=False)
    state, _ = tell([STARTED, SLOW], "n2", "n3", policy=alone)
    assert not state.slow
