"""Nodes that fail the preflight one after another: how a run ends that no node can help."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    AwaitStorage,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    RunPreflight,
    StartRanks,
)
from relight.resilience.decide.events import (
    AllocationArranged,
    AttemptStarted,
    Event,
    NodesRejected,
    PreflightFinished,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import StorageAnswered, StorageSilent

POLICY = Policy(nodes=1, tasks_per_node=1)
FULL = "disk: 1 MiB free"
ELSEWHERE = AllocationArranged(mode="successor", job_id="8")


def given(number: int, *nodes: str) -> AttemptStarted:
    return AttemptStarted(
        attempt=f"{number}.0",
        job_id=str(number),
        restart_count=0,
        nodes=nodes,
        batch_node=nodes[0],
    )


def tell(events: Sequence[Event], policy: Policy = POLICY) -> tuple[State, tuple[Action, ...]]:
    state = State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


def visits(evidence: str, *nodes: str) -> list[Event]:
    """One allocation of one node after another, each found bad, but for the last way out."""
    story: list[Event] = []
    for number, node in enumerate(nodes):
        bad = PreflightFinished(bad={node: evidence})
        story += [given(number, node), bad, ELSEWHERE]
    return story[:-1]


@pytest.mark.parametrize(
    ("nodes", "chosen"), [(("n1", "n2", "n3", "n4"), ("n3", "n4")), (("n1", "n2"), ("n1", "n2"))]
)
def test_nodes_that_fail_alike_are_used_where_no_others_are(
    nodes: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    looked = PreflightFinished(bad={}, doubted={"n1": FULL, "n2": FULL})
    state, actions = tell([given(1, *nodes), looked], Policy(nodes=2, tasks_per_node=1))
    assert isinstance(actions[-1], StartRanks)
    assert actions[-1].nodes == chosen
    assert state.excluded == ()


def test_three_nodes_that_fail_alike_are_not_the_reason() -> None:
    _, second = tell(visits(FULL, "n1", "n2"))
    assert isinstance(second[-1], RequestAllocation)
    _, third = tell(visits(FULL, "n1", "n2", "n3"))
    excluded, end = third
    assert isinstance(excluded, ExcludeNode)
    assert isinstance(end, Finish)
    assert (end.outcome, end.cause) == (Outcome.FAILED, "preflight")
    assert end.reason == (f"n1, n2, n3 fail alike (disk), so it is not the nodes; last: {FULL}")


def test_what_a_check_says_is_no_name_of_a_check() -> None:
    said = "nhc; exit 1: bad"
    story = [*visits(f"site_command: {said}", "n1", "n2"), ELSEWHERE, given(3, "n3")]
    _, actions = tell([*story, PreflightFinished(bad={"n3": f"memory: {said}"})])
    assert isinstance(actions[-1], RequestAllocation)


def test_nodes_that_fail_each_in_its_own_way_are_left_one_by_one() -> None:
    story = [*visits(FULL, "n1", "n2"), ELSEWHERE, given(3, "n3")]
    _, actions = tell([*story, PreflightFinished(bad={"n3": "memory: 1 GiB"})])
    assert isinstance(actions[-1], RequestAllocation)


def test_a_fit_node_beside_the_bad_ones_ends_the_doubt() -> None:
    story = [*visits(FULL, "n1", "n2"), ELSEWHERE, given(3, "n3", "n4")]
    _, actions = tell([*story, PreflightFinished(bad={"n3": FULL})])
    start = actions[-1]
    assert isinstance(start, StartRanks)
    assert start.nodes == ("n4",)


def test_a_node_that_is_given_again_is_looked_at_again_and_used_when_it_is_fit() -> None:
    story = [*visits(FULL, "n1"), ELSEWHERE, given(1, "n1")]
    state, (look,) = tell(story)
    assert isinstance(look, RunPreflight)
    assert look.nodes == ("n1",)
    assert look.reason == f"no other nodes were to be had than those left for n1: {FULL}"
    assert state.excluded == ()
    _, (start,) = tell([*story, PreflightFinished(bad={})])
    assert isinstance(start, StartRanks)
    assert start.nodes == ("n1",)


@pytest.mark.parametrize("preflight", [True, False])
def test_a_later_life_of_the_supervisor_does_not_take_what_the_one_before_has_left(
    preflight: bool,
) -> None:
    policy = Policy(nodes=1, tasks_per_node=1, preflight=preflight)
    begin = given(7, "n1")
    story: list[Event] = [begin, NodesRejected(bad={"n1": "its fan is loud"}), begin]
    state, (order,) = tell(story, policy)
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n1",)
    assert state.excluded_nodes == ("n1",)


def test_a_later_life_of_the_supervisor_knows_that_a_node_is_better_than_none() -> None:
    story = [*visits(FULL, "n1"), ELSEWHERE, given(1, "n1")]
    state, (look,) = tell([*story, given(1, "n1")])
    assert isinstance(look, RunPreflight)
    assert state.kept == {"n1"}


def test_the_same_node_again_and_again_ends_the_run() -> None:
    _, actions = tell(visits(FULL, "n1", "n1", "n1"))
    end = actions[-1]
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.FAILED


def test_a_node_that_is_given_again_beside_enough_others_stays_out() -> None:
    state, (look,) = tell([*visits(FULL, "n1"), ELSEWHERE, given(1, "n1", "n2")])
    assert isinstance(look, RunPreflight)
    assert look.nodes == ("n2",)
    assert state.excluded_nodes == ("n1",)


def test_a_long_list_of_nodes_is_told_by_its_end() -> None:
    faults = [f"check{number}: bad" for number in range(11)]
    story: list[Event] = []
    for number, fault in enumerate(faults):
        bad = PreflightFinished(bad={f"n{number}": fault})
        story += [given(number, f"n{number}"), bad, ELSEWHERE]
    _, actions = tell(story[:-1])
    end = actions[-1]
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.STOPPED
    assert end.reason.endswith(
        "last: n8: check8: bad; n9: check9: bad; n10: check10: bad; and 8 more"
    )


AWAY = PreflightFinished(bad={}, outage="disk: Stale file handle (n1, n2)")
BACK = StorageAnswered(waited_s=40.0)
TWO = Policy(nodes=2, tasks_per_node=1, outage_s=60.0, no_progress=3)


def test_a_file_system_that_is_away_on_all_nodes_is_waited_for() -> None:
    state, (order,) = tell([given(1, "n1", "n2"), AWAY], TWO)
    assert isinstance(order, AwaitStorage)
    assert (order.limit_s, "Stale" in order.reason, state.phase) == (60.0, True, Phase.WAITING)
    _, (again,) = step(state, BACK, TWO, 0.0)
    assert isinstance(again, RunPreflight)
    assert again.nodes == ("n1", "n2")
    _, (start,) = tell([given(1, "n1", "n2"), AWAY, BACK, PreflightFinished(bad={})], TWO)
    assert isinstance(start, StartRanks)


def test_one_that_the_supervisor_reaches_and_nodes_do_not_is_no_endless_wait() -> None:
    rounds: list[Event] = [AWAY, StorageAnswered(waited_s=1.0)] * 4
    _, (end,) = tell([given(1, "n1", "n2"), *rounds], TWO)
    assert isinstance(end, Finish)
    assert (end.outcome, "4 restarts and no newer checkpoint" in end.reason) == (
        Outcome.STOPPED,
        True,
    )


def test_one_that_stays_away_gives_the_nodes_back() -> None:
    silent = StorageSilent(waited_s=61.0, detail="no answer in 10 s")
    _, (order,) = tell([given(1, "n1", "n2"), AWAY, silent], TWO)
    assert isinstance(order, RequestAllocation)
    assert "61 s" in order.reason
