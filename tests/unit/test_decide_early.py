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
    NodesRejected,
    RankExited,
    RanksStarted,
    RanksStopped,
    StopRequested,
    Superseded,
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


@pytest.mark.parametrize(
    "first",
    [
        StopRequested(cause=StopCause.SIGNALLED, kill_at=None, evidence="USR1"),
        StopRequested(cause=StopCause.UNKNOWN, kill_at=None, evidence="nobody said why"),
        RankExited(generation=1, rank=0, node="n1", code=1),
    ],
)
def test_it_is_asked_for_as_soon_as_the_end_is_known(first: Event) -> None:
    state, actions = tell((BEGIN, STARTED, first, told(StopCause.PREEMPTED)))
    (order,) = actions
    assert isinstance(order, RequestAllocation)
    assert order.early
    assert (state.phase, state.asked) == (Phase.STOPPING, True)


@pytest.mark.parametrize("answers", [(), (ARRANGED,)])
def test_one_successor_is_enough(answers: tuple[Event, ...]) -> None:
    state, actions = tell((*STORY, *answers, told(StopCause.PREEMPTED)))
    assert actions == ()
    assert state.stop is not None
    assert state.stop.cause is StopCause.PREEMPTED


def test_after_a_refusal_another_reason_asks_again() -> None:
    no = AllocationRefused(reason="no successor")
    _, actions = tell((*STORY, no, told(StopCause.PREEMPTED)))
    assert [type(action) for action in actions] == [RequestAllocation]


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


BAD = NodesRejected(bad={"n2": "its fan is loud"})


@pytest.mark.parametrize(
    "story",
    [(ARRANGED, BAD, STOPPED), (BAD, ARRANGED, STOPPED), (BAD, STOPPED, ARRANGED)],
    ids=["after the answer", "before it", "the ranks were faster"],
)
@pytest.mark.parametrize(
    "answer", [ARRANGED, AllocationRefused(reason="no answer", transient=True)], ids=["yes", "no"]
)
def test_the_successor_hears_of_a_node_that_was_found_bad_since(
    story: tuple[Event, ...], answer: Event
) -> None:
    state, (order,) = tell((*STORY, *story))
    assert isinstance(order, RequestAllocation)
    assert (order.early, order.exclude) == (False, ("n2",))
    assert "n2" in order.reason
    _, actions = tell((answer,), state)
    assert end_of(actions).outcome is Outcome.RESTARTING
    assert "job 8" in end_of(actions).reason


def test_a_cancel_takes_back_what_is_told_of_more_nodes() -> None:
    state, _ = tell((*STORY, ARRANGED, BAD, STOPPED))
    _, actions = tell((told(StopCause.CANCELLED), ARRANGED), state)
    assert [type(action) for action in actions] == [Withdraw, Finish]
    assert end_of(actions).outcome is Outcome.CANCELLED


def ended(code: int) -> tuple[Event, ...]:
    return tuple(
        RankExited(generation=1, rank=rank, node=f"n{rank + 1}", code=code) for rank in (0, 1)
    )


def test_a_run_that_does_not_wait_for_the_answer_takes_it_back() -> None:
    cancel = told(StopCause.CANCELLED)
    for story in (ended(0), (cancel, STOPPED)):
        state, actions = tell((*STORY, *story))
        assert [type(action) for action in actions] == [Finish]
        state, actions = tell((ARRANGED,), state)
        assert actions == (Withdraw(mode="successor", job_id="8", reason="the run does not go on"),)
        assert tell((ARRANGED,), state)[1] == ()


def test_what_another_supervisor_may_need_is_not_taken_back() -> None:
    state, _ = tell((*STORY, Superseded(reason="attempt 8.0 has taken over"), ARRANGED))
    assert (state.phase, state.asked) == (Phase.ENDED, False)
    assert tell((ARRANGED,), state)[1] == ()
