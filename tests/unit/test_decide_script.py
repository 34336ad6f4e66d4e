"""A batch script in the place of ranks: its end, and what that means while the job has to stop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    ProbeNodes,
    RequestAllocation,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    NodesProbed,
    RankExited,
    RanksStarted,
    RanksStopped,
    StopRequested,
    ToldToSave,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State

POLICY = Policy(nodes=2, tasks_per_node=1, script=True, preflight=False, failures=0)
BEGIN: tuple[Event, ...] = (
    AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2"), batch_node="n1"),
    RanksStarted(generation=1, nodes=("n1", "n2"), world_size=1),
)


def ended(code: int, *, stopped: bool = False) -> RankExited:
    return RankExited(generation=1, rank=0, node="n1", code=code, stopped=stopped)


def tell(*events: Event, policy: Policy = POLICY) -> tuple[Action, ...]:
    """The actions after the last of these events."""
    state = State()
    actions: tuple[Action, ...] = ()
    for event in (*BEGIN, *events):
        state, actions = step(state, event, policy, 100.0)
    return actions


def test_code_0_is_the_end_though_there_are_two_nodes() -> None:
    (finish,) = tell(ended(0))
    assert isinstance(finish, Finish)
    assert finish.outcome is Outcome.COMPLETED


def test_after_a_failure_all_nodes_are_asked() -> None:
    (stop,) = tell(ended(3))
    assert isinstance(stop, StopRanks)
    (probe,) = tell(ended(3), RanksStopped(generation=1))
    assert isinstance(probe, ProbeNodes)
    assert probe.nodes == ("n1", "n2")


@pytest.mark.parametrize(
    ("end", "code"),
    [(ended(3), 3), (RankExited(generation=1, rank=0, node="n1", signal="SIGKILL"), 137)],
)
def test_when_all_nodes_answer_the_script_has_failed_and_its_code_is_that_of_the_job(
    end: RankExited, code: int
) -> None:
    probed = NodesProbed(answered=("n1", "n2"), silent={})
    (finish,) = tell(end, RanksStopped(generation=1), probed)
    assert isinstance(finish, Finish)
    assert (finish.outcome, finish.exit_code) == (Outcome.FAILED, code)


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n2", "n3")])
def test_a_script_has_the_nodes_that_sbatch_gave_it(nodes: tuple[str, ...]) -> None:
    """Another attempt may have more of them: what was asked for is 2 to 3."""
    state, _ = step(State(), BEGIN[0], POLICY, 100.0)
    again = AttemptStarted(attempt="7.1", job_id="7", restart_count=1, nodes=nodes, batch_node="n1")
    _, (start,) = step(state, again, replace(POLICY, nodes=1), 200.0)
    assert isinstance(start, StartRanks)
    assert start.nodes == nodes


def test_when_a_node_is_silent_the_script_goes_on_without_it() -> None:
    probed = NodesProbed(answered=("n1",), silent={"n2": "no answer"})
    actions = tell(ended(3), RanksStopped(generation=1), probed)
    assert [type(action) for action in actions] == [ExcludeNode, RequestAllocation]


@pytest.mark.parametrize("cause", [StopCause.PREEMPTED, StopCause.TIME_LIMIT, StopCause.REQUEUED])
@pytest.mark.parametrize("code", [0, 3, 75])
def test_no_exit_code_is_the_end_while_the_job_has_to_stop(cause: StopCause, code: int) -> None:
    stop = StopRequested(cause=cause, kill_at=None, evidence="so it is")
    assert tell(stop, ended(code)) == ()
    (request,) = tell(stop, ended(code), RanksStopped(generation=1))
    assert isinstance(request, RequestAllocation)


def test_a_script_that_we_killed_says_nothing() -> None:
    assert tell(ended(0, stopped=True)) == ()


def test_a_script_that_may_fail_is_run_again_in_place() -> None:
    patient = replace(POLICY, failures=1)
    probed = NodesProbed(answered=("n1", "n2"), silent={})
    (start,) = tell(ended(3), RanksStopped(generation=1), probed, policy=patient)
    assert isinstance(start, StartRanks)


TOLD = ToldToSave(generation=1, signal="SIGUSR1")


@pytest.mark.parametrize("script", [True, False])
def test_a_program_that_ends_with_75_once_it_was_told_to_save_starts_again_here(
    script: bool,
) -> None:
    """It costs nothing: ``failures`` is 0."""
    policy = replace(POLICY, script=script)
    (stop,) = tell(TOLD, ended(75), policy=policy)
    assert isinstance(stop, StopRanks)
    assert stop.patience_s == policy.others_save_s, "other ranks still save"
    (start,) = tell(TOLD, ended(75), RanksStopped(generation=1), policy=policy)
    assert isinstance(start, StartRanks)
    assert "was told to save, and ended with 75" in start.reason


@pytest.mark.parametrize(
    "story",
    [
        (ended(75),),
        (replace(TOLD, generation=2), ended(75)),
        (TOLD, ended(3)),
        (TOLD, ended(75), RanksStopped(generation=1), replace(ended(75), generation=2)),
    ],
    ids=["never told", "told too late", "another code", "only once"],
)
def test_any_other_end_is_a_failure(story: tuple[Event, ...]) -> None:
    last = story[-1]
    assert isinstance(last, RankExited)
    probed = NodesProbed(answered=("n1", "n2"), silent={})
    (finish,) = tell(*story, RanksStopped(generation=last.generation), probed)
    assert isinstance(finish, Finish)
    assert finish.outcome is Outcome.FAILED


def test_a_program_that_was_told_to_save_and_goes_on_is_done_at_its_end() -> None:
    (finish,) = tell(TOLD, ended(0))
    assert isinstance(finish, Finish)
    assert finish.outcome is Outcome.COMPLETED


SAVES_ITSELF = replace(POLICY, script=False, nodes=1, saves_itself=True)


@pytest.mark.parametrize(
    ("policy", "stop", "done"),
    [
        (SAVES_ITSELF, StopCause.PREEMPTED, False),
        (SAVES_ITSELF, StopCause.TIME_LIMIT, False),
        (SAVES_ITSELF, StopCause.SIGNALLED, True),
        (replace(SAVES_ITSELF, saves_itself=False), StopCause.PREEMPTED, True),
    ],
)
def test_ranks_that_save_at_the_schedulers_word_and_end_have_not_done_their_work(
    policy: Policy, stop: StopCause, done: bool
) -> None:
    """They may hear of the end before our word, so that we have not ordered theirs."""
    state = State()
    told = StopRequested(cause=stop, kill_at=200.0, evidence="x")
    for event in (*BEGIN, told, ended(0), RanksStopped(generation=1)):
        state, _ = step(state, event, policy, 100.0)
    assert state.phase is (Phase.ENDED if done else Phase.MOVING)
