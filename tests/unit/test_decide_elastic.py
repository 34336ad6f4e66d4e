"""A world that may shrink: what is lost is not waited for as long as enough is left."""

from __future__ import annotations

from promises import step

from relight.resilience.decide.actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    StartRanks,
)
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    NodesProbed,
    PreflightFinished,
    RankExited,
    RankLost,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import State

POLICY = Policy(nodes=3, min_nodes=2, tasks_per_node=1)
FINE = PreflightFinished(bad={})


def begin(*nodes: str, name: str = "7.0") -> AttemptStarted:
    return AttemptStarted(
        attempt=name, job_id="7", restart_count=0, nodes=nodes, batch_node=nodes[0]
    )


def tell(
    events: list[Event], state: State | None = None, policy: Policy = POLICY
) -> tuple[State, tuple[Action, ...]]:
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


def start_of(actions: tuple[Action, ...]) -> StartRanks:
    order = actions[-1]
    assert isinstance(order, StartRanks), actions
    return order


def lose(node: str, *nodes: str, generation: int = 1) -> list[Event]:
    """A generation runs, and one of its nodes is gone."""
    return [
        RanksStarted(generation=generation, nodes=nodes, world_size=len(nodes)),
        RankLost(generation=generation, rank=nodes.index(node), node=node, detail="silent"),
        RanksStopped(generation=generation),
        NodesProbed(answered=(), silent={node: "no answer"}),
    ]


def test_a_lost_node_is_done_without_in_the_same_allocation() -> None:
    state, actions = tell([begin("n1", "n2", "n3"), FINE, *lose("n2", "n1", "n2", "n3")])
    assert isinstance(actions[0], ExcludeNode)
    order = start_of(actions)
    assert order.nodes == ("n1", "n3")
    assert "on 2 of 3 nodes" in order.reason
    ends: list[Event] = [
        RankExited(generation=2, rank=rank, node=node, code=0)
        for rank, node in enumerate(order.nodes)
    ]
    started = RanksStarted(generation=2, nodes=order.nodes, world_size=2)
    _, actions = tell([started, *ends], state)
    end = actions[-1]
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED, "two ranks are all of this generation"


def test_nodes_may_carry_unequal_numbers_of_ranks() -> None:
    policy = Policy(nodes=2, tasks_per_node=1, ranks=3, preflight=False)
    state = State()
    events: list[Event] = [
        begin("n1", "n2"),
        RanksStarted(generation=1, nodes=("n1", "n2"), world_size=3),
        *(RankExited(generation=1, rank=rank, node="n2", code=0) for rank in range(3)),
    ]
    actions: tuple[Action, ...] = ()
    for event in events:
        assert not any(isinstance(action, Finish) for action in actions)
        state, actions = step(state, event, policy, 0.0)
    assert isinstance(actions[-1], Finish)


def test_a_spare_is_better_than_a_smaller_world() -> None:
    story = [begin("n1", "n2", "n3", "n4"), FINE, *lose("n2", "n1", "n2", "n3")]
    _, actions = tell(story)
    assert start_of(actions).nodes == ("n1", "n3", "n4")


def test_where_nodes_have_saves_they_keep_their_ranks_and_a_spare_takes_the_empty_place() -> None:
    policy = Policy(nodes=3, min_nodes=2, tasks_per_node=1, keep_places=True)
    five = ("n1", "n2", "n3", "n4", "n5")
    state, actions = tell([begin(*five), FINE], policy=policy)
    assert start_of(actions).nodes == ("n1", "n2", "n3"), "the order of the allocation"
    state, actions = tell(lose("n1", "n1", "n2", "n3"), state, policy)
    assert start_of(actions).nodes == ("n4", "n2", "n3")
    state, actions = tell(lose("n2", "n4", "n2", "n3", generation=2), state, policy)
    assert start_of(actions).nodes == ("n4", "n5", "n3")
    _, actions = tell([begin(*five), FINE], state, policy)
    assert start_of(actions).nodes == ("n4", "n5", "n3"), "nor does a new supervisor move them"
    _, actions = tell(lose("n5", "n4", "n5", "n3", generation=3), state, policy)
    assert start_of(actions).nodes == ("n3", "n4"), "another number of ranks: nobody has theirs"
    _, actions = tell([begin(*five[2:], name="8.0"), FINE], state, policy)
    assert start_of(actions).nodes == five[2:], "in a new allocation nobody has anything"


def test_below_the_least_a_new_allocation_is_asked_for_and_the_world_grows_back() -> None:
    state, _ = tell([begin("n1", "n2", "n3"), FINE, *lose("n2", "n1", "n2", "n3")])
    state, actions = tell(lose("n3", "n1", "n3", generation=2), state)
    order = actions[-1]
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2", "n3")
    _, actions = tell([begin("n1", "n4", "n5", name="8.0"), FINE], state)
    assert start_of(actions).nodes == ("n1", "n4", "n5")


def test_a_small_allocation_is_enough_to_begin_with() -> None:
    _, actions = tell([begin("n1", "n2"), FINE])
    assert start_of(actions).nodes == ("n1", "n2")


def test_a_bad_node_found_by_preflight_is_done_without() -> None:
    _, actions = tell([begin("n1", "n2", "n3"), PreflightFinished(bad={"n1": "disk"})])
    assert start_of(actions).nodes == ("n2", "n3")


def test_weak_evidence_does_not_shrink_the_world() -> None:
    story: list[Event] = [begin("n1", "n2", "n3"), FINE]
    for generation in (1, 2):
        story += [
            RanksStarted(generation=generation, nodes=("n1", "n2", "n3"), world_size=3),
            RankExited(generation=generation, rank=1, node="n2", signal="SIGSEGV"),
            RanksStopped(generation=generation),
        ]
    _, actions = tell(story)
    assert start_of(actions).nodes == ("n1", "n2", "n3")
