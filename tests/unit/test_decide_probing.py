"""Suspects that are asked, and those that nobody waits for."""

from __future__ import annotations

from dataclasses import replace

from promises import step

from relight.resilience.decide.actions import (
    Action,
    ExcludeNode,
    RequestAllocation,
    RunPreflight,
    StartRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AttemptStarted,
    Event,
    NodesProbed,
    PreflightFinished,
    ProbeUnanswered,
    RankLost,
    RanksHung,
    RanksStarted,
    RanksStopped,
    RanksStraggled,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.probing import gone
from relight.resilience.decide.state import Phase, State

POLICY = Policy(nodes=2, tasks_per_node=1)
FINE = PreflightFinished(bad={})
LOST = RankLost(generation=1, rank=1, node="n2", detail="silent")
STOPPED = RanksStopped(generation=1)

SILENT = NodesProbed(answered=(), silent={"n2": "no answer"})
UNANSWERED = ProbeUnanswered(nodes=("n2",), waited_s=1.0)


def attempt(*nodes: str) -> AttemptStarted:
    return AttemptStarted(
        attempt="7.0", job_id="7", restart_count=0, nodes=nodes, batch_node=nodes[0]
    )


def started(generation: int = 1) -> RanksStarted:
    return RanksStarted(generation=generation, nodes=("n1", "n2"), world_size=2)


def tell(*events: Event, state: State | None = None) -> tuple[State, tuple[Action, ...]]:
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, POLICY, 0.0)
    return state, actions


def lose_n2(*nodes: str) -> State:
    return tell(attempt(*nodes), FINE, started(), LOST, STOPPED)[0]


def only(actions: tuple[Action, ...]) -> Action:
    (action,) = actions
    return action


def test_a_spare_is_not_kept_waiting_for_a_command_on_a_dead_node_to_fail() -> None:
    state, actions = tell(UNANSWERED, state=lose_n2("n1", "n2", "n3"))
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.nodes == ("n1", "n3")
    assert "not answered" in order.reason
    assert (state.failures, state.node_failures) == (0, 1), "it is not the program's failure"
    after, actions = tell(SILENT, state=state)
    assert isinstance(only(actions), ExcludeNode)
    assert after.phase is Phase.STARTING
    assert gone(state) == gone(after) == ("n2",), "the end of a job waits for no answer either"
    after, actions = tell(NodesProbed(answered=("n2",), silent={}), state=state)
    assert (after.active, gone(after), actions) == (("n1", "n3"), (), ())
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    _, actions = tell(started(2), preempted, state=after)
    assert isinstance(actions[-1], RequestAllocation)
    assert actions[-1].exclude == (), "nothing speaks against it any more"


def test_who_has_answered_may_be_used_while_another_is_not_waited_for() -> None:
    running, _ = tell(attempt("n1", "n2", "n3"), FINE, started())
    first = RankLost(generation=1, rank=0, node="n1", detail="silent")
    state, _ = tell(LOST, first, STOPPED, state=running)
    assert state.suspects == ("n2", "n1")
    _, actions = tell(UNANSWERED, state=state)
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.nodes == ("n1", "n3")


def test_a_late_answer_of_one_node_is_not_that_of_another() -> None:
    state = lose_n2("n1", "n2", "n3", "n4")
    state, _ = tell(UNANSWERED, started(2), state=state)
    first = RankLost(generation=2, rank=0, node="n1", detail="silent")
    state, _ = tell(first, RanksStopped(generation=2), state=state)
    state, actions = tell(SILENT, state=state)
    assert isinstance(only(actions), ExcludeNode)
    assert state.phase is Phase.PROBING, "n1 is still asked"
    _, actions = tell(NodesProbed(answered=(), silent={"n1": "no answer"}), state=state)
    assert isinstance(actions[-1], StartRanks)
    assert actions[-1].nodes == ("n3", "n4")


def test_nodes_that_are_lost_at_once_are_all_named_when_all_answer_again() -> None:
    """One has lost power for a second, and has torn the step of the other down."""
    first = RankLost(generation=1, rank=0, node="n1", detail="silent")
    running, _ = tell(attempt("n1", "n2"), FINE, started())
    state, _ = tell(first, first, LOST, LOST, STOPPED, state=running)
    _, actions = tell(NodesProbed(answered=("n1", "n2"), silent={}), state=state)
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.reason == "restart in the allocation: rank 0 on n1: silent; n2 likewise"
    known = NodesProbed(answered=("n1", "n2"), silent={}, rebooted=("n2",))
    order = only(tell(known, state=state)[1])
    assert isinstance(order, StartRanks)
    assert order.reason.endswith("rank 0 on n1: silent; n2 likewise; rebooted: n2")


def test_a_node_whose_agent_speaks_is_not_taken_for_dead_when_a_command_takes_long() -> None:
    hung = RanksHung(generation=1, ranks=(1,), nodes=("n2",), detail="no step in 60 s")
    state, _ = tell(attempt("n1", "n2", "n3"), FINE, started(), hung, STOPPED)
    assert tell(UNANSWERED, state=state) == (state, ())


def test_the_host_of_the_supervisor_is_not_given_back_though_it_was_lost_once() -> None:
    again = AttemptStarted(
        attempt="7.1",
        job_id="7",
        restart_count=1,
        nodes=("n1", "n2", "n3"),
        batch_node="n1",
        lost_batch_node="n1",
    )
    state, actions = tell(attempt("n1", "n2"), FINE, started(), again)
    assert isinstance(actions[0], ExcludeNode)
    assert gone(state) == ()


def test_without_a_spare_the_answer_is_waited_for() -> None:
    state = lose_n2("n1", "n2")
    assert tell(UNANSWERED, state=state) == (state, ())


def test_a_suspect_that_nobody_had_the_time_to_ask_is_avoided_by_the_next_job() -> None:
    state = lose_n2("n1", "n2")
    _, actions = tell(
        StopRequested(cause=StopCause.REQUEUED, kill_at=9.0, evidence="x"), state=state
    )
    order = only(actions)
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2",)


def test_a_node_that_is_lost_in_the_last_save_is_avoided_as_one_that_was_lost_before_it() -> None:
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    sent = AllocationArranged(mode="successor", job_id="8")
    state, actions = tell(
        attempt("n1", "n2", "n3"), FINE, started(), preempted, sent, LOST, STOPPED
    )
    order = only(actions)
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2",)
    assert gone(state) == ("n2",), "or the next job would wait for it"


def test_a_node_that_was_slow_before_it_fell_silent_is_down_like_others() -> None:
    slow = RanksStraggled(generation=1, ranks=(1,), node="n2", detail="slow", by_node=True)
    state, _ = tell(attempt("n1", "n2", "n3"), FINE, started(), slow, LOST, STOPPED)
    state, actions = tell(UNANSWERED, started(2), SILENT, state=state)
    assert isinstance(only(actions), ExcludeNode)
    assert gone(state) == ("n2",)


def test_a_later_supervisor_knows_which_node_was_left() -> None:
    left, _ = tell(UNANSWERED, state=lose_n2("n1", "n2", "n3"))
    state, actions = tell(attempt("n1", "n2", "n3"), state=left)
    order = only(actions)
    assert isinstance(order, RunPreflight)
    assert order.nodes == ("n1", "n3"), "it would wait for the other one"
    _, actions = tell(FINE, state=state)
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.nodes == ("n1", "n3")
    _, actions = tell(replace(attempt("n1", "n2"), attempt="8.0"), FINE, state=left)
    order = only(actions)
    assert isinstance(order, StartRanks), "another allocation has it because it is well"
    _, actions = tell(attempt("n1", "n2"), state=left)
    order = only(actions)
    assert isinstance(order, RunPreflight)
    assert order.nodes == ("n1", "n2"), "no other is there any more"
