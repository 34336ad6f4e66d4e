"""Nodes of last choice: slow ones, for which nothing is stopped, and those with full GPUs."""

from __future__ import annotations

from promises import step

from relight.resilience.decide.actions import (
    Action,
    RequestAllocation,
    StartAnyway,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    GpuMemoryStayed,
    NodesRejected,
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
    _, actions = tell([STARTED, SLOW, SLOW, *KILLED], "n1", "n2", "n3")
    assert nodes_of(actions) == ("n1", "n3")
    told = "another node takes the place of n2: straggler, twice the time"
    assert actions[-1].reason.endswith(told), "the journal says why"


def test_without_a_spare_it_is_used_again_and_costs_no_allocation() -> None:
    _, actions = tell([STARTED, SLOW, *KILLED], "n1", "n2")
    assert nodes_of(actions) == ("n1", "n2")
    assert "straggler" not in actions[-1].reason


def test_a_new_allocation_avoids_it_and_forgets_it_first() -> None:
    requeued = StopRequested(cause=StopCause.REQUEUED, kill_at=9.0, evidence="x")
    _, actions = tell([STARTED, SLOW, requeued, RanksStopped(generation=1)], "n1", "n2")
    order = actions[-1]
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2",)
    assert order.reason.endswith("without n2: straggler, twice the time")
    ill = NodesRejected(bad={"n2": "it is ill"})
    _, actions = tell([STARTED, SLOW, ill, requeued, RanksStopped(generation=1)], "n1", "n2")
    assert "straggler" not in actions[-1].reason, "it is left for more than that"


def test_slow_work_is_not_held_against_a_node() -> None:
    work = RanksStraggled(generation=1, ranks=(1,), node="n2", detail="x", by_node=False)
    older = RanksStraggled(generation=0, ranks=(1,), node="n2", detail="x", by_node=True)
    state, _ = tell([STARTED, work, older], "n1", "n2", "n3")
    assert not state.last_choice
    alone = Policy(nodes=1, tasks_per_node=2, preflight=False)
    state, _ = tell([STARTED, SLOW], "n2", "n3", policy=alone)
    assert not state.last_choice


FULL = GpuMemoryStayed(generation=2, held={"n2": "GPU 0: 61000 MiB in use, 0 processes"})
HELD = f"GPU memory held on n2: {FULL.held['n2']}"


def test_a_node_whose_gpus_stay_full_gives_its_place_to_a_spare_at_once() -> None:
    _, actions = tell([STARTED, *KILLED, FULL], "n1", "n2", "n3")
    (stop,) = actions
    assert isinstance(stop, StopRanks)
    stopped = RanksStopped(generation=2)
    state, actions = tell([STARTED, *KILLED, FULL, stopped], "n1", "n2", "n3")
    assert nodes_of(actions) == ("n1", "n3")
    assert actions[-1].reason.endswith(HELD), "once"
    assert (state.failures, state.node_failures) == (1, 1), "it is charged to the node"
    assert not state.excluded, "it may be free again by the time that it is needed"


def test_without_a_spare_the_ranks_try_what_memory_is_left() -> None:
    state, actions = tell([STARTED, *KILLED, FULL], "n1", "n2")
    assert actions == (StartAnyway(reason=f"no better node is here; {HELD}"),)
    assert state.last_choice[0].cause == "GPU memory held"
    stopped = RanksStopped(generation=2)
    spare = GpuMemoryStayed(generation=3, held={"n3": FULL.held["n2"]})
    _, actions = tell([STARTED, *KILLED, FULL, stopped, spare], "n1", "n2", "n3")
    assert isinstance(actions[-1], StartAnyway), "the spare is no better: nobody goes to and fro"
    again = RanksStarted(generation=2, nodes=("n1", "n2"), world_size=2)
    _, actions = tell([STARTED, *KILLED, FULL, again, FULL], "n1", "n2")
    assert actions == (), "too late"
