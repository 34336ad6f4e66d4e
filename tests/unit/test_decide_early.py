"""A successor that is sent before the ranks have stopped: they may save until they are killed."""

from __future__ import annotations

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    Finish,
    Outcome,
    RequestAllocation,
    SaveAndStop,
    Withdraw,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    Event,
    RankExited,
    RanksStarted,
    RanksStopped,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State

POLICY = Policy(nodes=2, tasks_per_node=1, preflight=False)
BEGIN = AttemptStarted(
    attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2"), batch_node="n1"
)
STARTED = RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2)
ARRANGED = AllocationArranged(mode="successor", job_id="8")
STOPPED = RanksStopped(generation=1)


def told(cause: StopCause) -> StopRequested:
    return StopRequested(cause=cause, kill_at=100.0, evidence="because")


LIMIT = told(StopCause.TIME_LIMIT)
STORY: tuple[Event, ...] = (BEGIN, STARTED, LIMIT)


def tell(
    events: tuple[Event, ...], state: State | None = None, policy: Policy = POLICY
) -> tuple[State, tuple[Action, ...]]:
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


def end_of(actions: tuple[Action, ...]) -> Finish:
    end = actions[-1]
    assert isinstance(end, Finish), actions
    return end


@pytest.mark.parametrize("cause", [StopCause.TIME_LIMIT, StopCause.PREEMPTED])
def test_the_successor_is_asked_for_while_the_ranks_save(cause: StopCause) -> None:
    state, actions = tell((BEGIN, STARTED, told(cause)))
    assert [type(action) for action in actions] == [SaveAndStop, RequestAllocation]
    state, actions = tell((ARRANGED,), state)
    assert (state.phase, actions) == (Phase.STOPPING, ())
    _, actions = tell((STOPPED,), state)
    assert end_of(actions).outcome is Outcome.RESTARTING
    assert "job 8" in end_of(actions).reason


def test_ranks_that_are_faster_than_the_scheduler_wait_for_its_answer() -> None:
    state, actions = tell((*STORY, STOPPED))
    assert (state.phase, actions) == (Phase.MOVING, ())
    _, actions = tell((ARRANGED,), state)
    assert end_of(actions).outcome is Outcome.RESTARTING


def test_who_is_refused_asks_again_when_a_requeue_is_possible() -> None:
    no = AllocationRefused(reason="no successor")
    state, actions = tell((*STORY, no))
    assert (state.phase, actions) == (Phase.STOPPING, ())
    for asking, actions in (tell((STOPPED,), state), tell((*STORY, STOPPED, no))):
        (order,) = actions
        assert isinstance(order, RequestAllocation)
        assert not order.early
        assert asking.phase is Phase.MOVING
    _, actions = tell((STOPPED, no), state)
    assert end_of(actions).outcome is Outcome.STOPPED


def test_a_run_that_completes_in_time_takes_it_back() -> None:
    ends = tuple(
        RankExited(generation=1, rank=rank, node=f"n{rank + 1}", code=0) for rank in (0, 1)
    )
    _, actions = tell((*STORY, ARRANGED, *ends))
    assert [type(action) for action in actions] == [Withdraw, Finish]
    assert end_of(actions).outcome is Outcome.COMPLETED


def test_a_cancel_takes_it_back() -> None:
    cancel = told(StopCause.CANCELLED)
    for story in ((ARRANGED, cancel, STOPPED), (cancel, STOPPED), (STOPPED, cancel, ARRANGED)):
        _, actions = tell((*STORY, *story))
        assert end_of(actions).outcome is Outcome.CANCELLED
        taken_back = [action for action in actions if isinstance(action, Withdraw)]
        assert [action.job_id for action in taken_back] == (["8"] if ARRANGED in story else [])


@pytest.mark.parametrize(
    "policy",
    [
        Policy(nodes=2, tasks_per_node=1, preflight=False, restart="requeue"),
        Policy(nodes=2, tasks_per_node=1, preflight=False, restart="never"),
        Policy(nodes=2, tasks_per_node=1, preflight=False, script=True),
        Policy(nodes=2, tasks_per_node=1, preflight=False, blind_attempts=0),
    ],
    ids=["requeue", "never", "script", "out of budget"],
)
def test_nothing_is_sent_that_could_not_stand(policy: Policy) -> None:
    state, actions = tell(STORY, policy=policy)
    assert [type(action) for action in actions] == [SaveAndStop]
    assert not state.asked


def test_a_scheduler_that_says_nothing_leaves_the_way_open() -> None:
    silent = AllocationRefused(reason="no answer", transient=True)
    _, actions = tell((*STORY, STOPPED, silent))
    assert end_of(actions).outcome is Outcome.INTERRUPTED
