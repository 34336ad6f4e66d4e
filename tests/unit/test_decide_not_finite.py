"""A loss that is NaN or infinite: told, or the end, or back to where it was a number."""

from __future__ import annotations

from typing import Literal

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    Finish,
    Outcome,
    RequestAllocation,
    RollBack,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    CheckpointCommitted,
    Event,
    LossNotFinite,
    RanksStarted,
    RanksStopped,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import State


def started(generation: int) -> RanksStarted:
    return RanksStarted(generation=generation, nodes=("n1",), world_size=2, restored_step=20)


def lost(generation: int = 1, since: int = 25) -> LossNotFinite:
    return LossNotFinite(
        generation=generation, rank=1, node="n1", since=since, detail="loss is nan"
    )


def tell(
    what: Literal["warn", "stop", "rollback"], *events: Event
) -> tuple[State, list[list[Action]]]:
    policy = Policy(nodes=1, tasks_per_node=2, preflight=False, not_finite=what)
    begin = AttemptStarted(
        attempt="7.0", job_id="7", restart_count=0, nodes=("n1",), batch_node="n1"
    )
    state, orders = State(), []
    for event in (begin, started(1), *events):
        state, actions = step(state, event, policy, 0.0)
        orders.append(list(actions))
    return state, orders[2:]


def test_a_warning_stops_nobody() -> None:
    assert tell("warn", lost())[1] == [[]]


def test_a_stop_is_final_and_what_may_be_spoilt_is_not_there_to_go_on_from() -> None:
    _, (stop, end) = tell("stop", lost(), RanksStopped(generation=1))
    assert [type(order) for order in stop] == [StopRanks]
    aside, finish = end
    assert isinstance(aside, RollBack)
    assert aside.step == 25
    assert isinstance(finish, Finish)
    assert (finish.outcome, finish.exit_code) == (Outcome.STOPPED, 93)
    assert finish.cause == "loss not finite"
    assert "rank 1 on n1: loss is nan" in finish.reason
    assert "checkpoints of step 25 and later may be spoilt, and are set aside" in finish.reason


def test_back_to_before_it_once_no_save_is_under_way() -> None:
    committed = CheckpointCommitted(step=30, generation=1)
    _, orders = tell("rollback", lost(), committed, RanksStopped(generation=1))
    stop, none, back = orders
    assert [type(order) for order in stop] == [StopRanks]
    assert none == []
    assert [type(order) for order in back] == [RollBack, StartRanks]
    assert isinstance(back[0], RollBack)
    assert back[0].step == 25


def test_a_second_time_without_a_newer_checkpoint_is_the_end() -> None:
    again: list[Event] = [lost(), RanksStopped(generation=1), started(2), lost(2)]
    _, orders = tell("rollback", *again, RanksStopped(generation=2))
    assert [type(order) for order in orders[-1]] == [RollBack, Finish]
    finish = orders[-1][-1]
    assert isinstance(finish, Finish)
    assert finish.outcome is Outcome.FAILED


def test_what_is_restarted_afterwards_is_not_rolled_back_again() -> None:
    state, _ = tell("rollback", lost(), RanksStopped(generation=1))
    assert state.spoilt is None


def test_the_end_of_the_allocation_does_not_save_what_is_spoilt() -> None:
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    _, orders = tell("rollback", lost(), preempted, RanksStopped(generation=1))
    assert [type(order) for order in orders[1]] == [RequestAllocation]
    assert [type(order) for order in orders[2]] == [RollBack]


@pytest.mark.parametrize("late", [[lost(2)], [lost(), lost()]])
def test_it_is_heard_while_these_ranks_run(late: list[Event]) -> None:
    _, orders = tell("rollback", *late)
    assert orders[-1] == []
