"""Decisions about nodes that turn bad while ranks run on them."""

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
    SaveAndStop,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    Event,
    NodeDegraded,
    NodesWatched,
    PreflightFinished,
    RankExited,
    RankLost,
    RanksStarted,
    RanksStopped,
    SaveFailed,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State

POLICY = Policy(nodes=2, tasks_per_node=1)
WARN = replace(POLICY, on_degrade="warn")
NEVER = replace(POLICY, restart="never")
FINE = PreflightFinished(bad={})
SAVED = CheckpointCommitted(step=7, generation=1)
STOPPED = RanksStopped(generation=1)
CRASHED = RankExited(generation=1, rank=0, node="n1", code=1)
REFUSED = AllocationRefused(reason="n2 is asked for by name")


def attempt(*nodes: str) -> AttemptStarted:
    return AttemptStarted(
        attempt="7.0", job_id="7", restart_count=0, nodes=nodes or ("n1", "n2"), batch_node="n1"
    )


def started(generation: int = 1, nodes: tuple[str, ...] = ("n1", "n2")) -> RanksStarted:
    return RanksStarted(generation=generation, nodes=nodes, world_size=2)


def bad(node: str = "n2", *, can_save: bool = True) -> NodeDegraded:
    return NodeDegraded(node=node, evidence="gpu_ecc: 3 uncorrected errors", can_save=can_save)


def tell(*story: Event, policy: Policy = POLICY) -> tuple[State, tuple[Action, ...]]:
    """The state after a story, and what its last event ordered."""
    state = State()
    actions: tuple[Action, ...] = ()
    for event in story:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


RUNNING = (attempt(), FINE, started())
WITH_SPARE = (attempt("n1", "n2", "n3"), FINE, started())


def test_ranks_save_and_go_on_with_the_spare() -> None:
    state, actions = tell(*WITH_SPARE, bad())
    assert actions == (
        SaveAndStop(
            cause=StopCause.DEGRADED,
            kill_at=None,
            reason="n2 turns bad: gpu_ecc: 3 uncorrected errors",
        ),
    )
    assert state.phase is Phase.STOPPING
    saved_by_itself = RankExited(generation=1, rank=0, node="n1", code=75)
    state, actions = tell(*WITH_SPARE, bad(), saved_by_itself, SAVED, STOPPED)
    assert actions == (
        ExcludeNode(node="n2", cause="degraded", reason="gpu_ecc: 3 uncorrected errors"),
        StartRanks(
            generation=2,
            nodes=("n1", "n3"),
            delay_s=0.0,
            committed_step=7,
            reason="saved before a node fails; the allocation is still ours (n2 turns bad: "
            "gpu_ecc: 3 uncorrected errors)",
        ),
    )
    assert (state.node_failures, state.failures, state.past.failures) == (1, 0, 0)


def test_without_a_spare_a_new_allocation_is_asked_for() -> None:
    state, actions = tell(*RUNNING, bad(), SAVED, STOPPED)
    assert [type(action) for action in actions] == [ExcludeNode, RequestAllocation]
    arranged = AllocationArranged(mode="successor", job_id="8")
    state, actions = step(state, arranged, POLICY, 0.0)
    (finish,) = actions
    assert isinstance(finish, Finish)
    assert (finish.outcome, finish.cause) == (Outcome.RESTARTING, "degraded")


def test_a_bad_node_is_better_than_none() -> None:
    _, actions = tell(*RUNNING, bad(), SAVED, STOPPED, REFUSED)
    (start,) = actions
    assert isinstance(start, StartRanks)
    assert (start.nodes, start.generation) == (("n1", "n2"), 2)
    assert "n2 is asked for by name" in start.reason
    # It stays bad: that is known by now, and nothing is ordered again.
    assert (
        tell(
            *(*RUNNING, bad(), SAVED, STOPPED, REFUSED, started(2), bad()),
        )[1]
        == ()
    )


def test_a_scheduler_that_is_silent_is_no_reason_to_end_what_still_works() -> None:
    silent = replace(REFUSED, reason="no answer", transient=True)
    _, actions = tell(*RUNNING, bad(), SAVED, STOPPED, silent)
    (start,) = actions
    assert isinstance(start, StartRanks)
    assert start.nodes == ("n1", "n2")


def test_a_refusal_that_bad_nodes_cannot_help_ends_the_run() -> None:
    lost = RankLost(generation=1, rank=0, node="n1", detail="silent")
    state, _ = tell(*RUNNING, bad(), lost, STOPPED)
    assert state.phase is Phase.PROBING
    dead = replace(state, phase=Phase.MOVING, excluded=(*state.excluded, state.excluded[0]))
    dead = replace(dead, excluded=(replace(dead.excluded[0], node="n1", cause="node down"),))
    _, (finish,) = step(dead, REFUSED, POLICY, 0.0)
    assert isinstance(finish, Finish)
    assert finish.outcome is Outcome.STOPPED


@pytest.mark.parametrize(
    ("policy", "event"),
    [
        (POLICY, bad(can_save=False)),
        (WARN, bad()),
        (NEVER, bad()),
        (replace(POLICY, walltime_s=-1.0), bad()),
    ],
)
def test_it_is_only_noted(policy: Policy, event: NodeDegraded) -> None:
    running, _ = tell(*RUNNING, policy=replace(policy, walltime_s=None))
    state, actions = step(running, event, policy, 0.0)
    assert (state.phase, actions) == (Phase.RUNNING, ())
    assert [one.node for one in state.degraded] == ["n2"]


def test_while_saves_fail_no_work_is_given_up_for_it() -> None:
    no_room = SaveFailed(step=8, reason="disk full")
    state, actions = tell(*RUNNING, no_room, bad())
    assert (state.phase, actions) == (Phase.RUNNING, ())
    _, actions = tell(*RUNNING, no_room, bad(), replace(SAVED, step=9), bad())
    assert [type(action) for action in actions] == [SaveAndStop]


def test_once_it_can_be_saved_it_is_left() -> None:
    _, actions = tell(*RUNNING, bad(can_save=False), bad())
    assert [type(action) for action in actions] == [SaveAndStop]


@pytest.mark.parametrize("policy", [POLICY, WARN])
def test_after_another_failure_no_rank_starts_on_it(policy: Policy) -> None:
    story = (*WITH_SPARE, bad(can_save=False), CRASHED, STOPPED)
    state, actions = tell(*story, policy=policy)
    assert [type(action) for action in actions] == [ExcludeNode, StartRanks]
    assert (state.active, state.failures) == (("n1", "n3"), 1)


def test_only_warned_of_it_costs_no_allocation() -> None:
    state, actions = tell(*RUNNING, bad(), CRASHED, STOPPED, policy=WARN)
    assert [type(action) for action in actions] == [StartRanks]
    assert state.active == ("n1", "n2")


@pytest.mark.parametrize("policy", [POLICY, WARN])
def test_a_spare_that_turns_bad_is_left_at_once(policy: Policy) -> None:
    state, actions = tell(*WITH_SPARE, bad("n3"), policy=policy)
    assert actions == (
        ExcludeNode(node="n3", cause="degraded", reason="gpu_ecc: 3 uncorrected errors"),
    )
    assert state.phase is Phase.RUNNING


def test_a_preemption_beats_it_and_the_next_allocation_avoids_the_node() -> None:
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    state, actions = tell(*RUNNING, bad(), preempted)
    assert state.stop is not None
    assert state.stop.cause is StopCause.PREEMPTED
    (order,) = actions
    assert isinstance(order, RequestAllocation)
    assert (order.early, order.exclude) == (True, ())
    state, actions = step(state, STOPPED, POLICY, 0.0)
    assert (state.phase, [type(action) for action in actions]) == (Phase.MOVING, [ExcludeNode])
    _, (update,) = step(state, AllocationArranged(mode="successor", job_id="8"), POLICY, 0.0)
    assert isinstance(update, RequestAllocation)
    assert update.exclude == ("n2",)


def test_ranks_that_agree_on_no_step_go_on() -> None:
    state, actions = tell(*RUNNING, bad(), SaveFailed(step=None, reason="no answer"))
    assert (state.phase, state.stop, actions) == (Phase.RUNNING, None, ())
    assert [one.node for one in state.degraded] == ["n2"]


def test_ranks_that_have_failed_while_they_agreed_do_not_go_on() -> None:
    """They are being ended: without them the run would wait for ever."""
    story = (*WITH_SPARE, bad(), CRASHED, SaveFailed(step=None, reason="no answer", generation=1))
    state, _ = tell(*story)
    assert state.phase is Phase.STOPPING
    _, actions = tell(*story, STOPPED)
    assert [type(action) for action in actions] == [ExcludeNode, StartRanks]


@pytest.mark.parametrize("code", [0, 75])
def test_ranks_of_which_one_has_left_while_they_agreed_do_not_go_on(code: int) -> None:
    """Nobody would wait for it: a run without ranks ran for ever."""
    left = RankExited(generation=1, rank=0, node="n1", code=code, unfinished=True)
    story = (*WITH_SPARE, bad(), left, SaveFailed(step=None, reason="no answer", generation=1))
    state, actions = tell(*story)
    assert (state.phase, [type(action) for action in actions]) == (Phase.STOPPING, [StopRanks])
    _, actions = tell(*story, STOPPED)
    assert [type(action) for action in actions] == [ExcludeNode, StartRanks]


def test_the_last_generation_has_no_say_in_the_save_of_this_one() -> None:
    late = SaveFailed(step=None, reason="no answer", generation=1)
    story = (*WITH_SPARE, CRASHED, STOPPED, started(2), bad(), late)
    assert tell(*story) == (tell(*story[:-1])[0], ())


def test_a_rank_whose_save_failed_may_try_again() -> None:
    _, actions = tell(*RUNNING, bad(), SaveFailed(step=8, reason="disk full"))
    assert actions == ()


def test_a_crash_while_they_save_is_a_failure() -> None:
    state, actions = tell(*WITH_SPARE, bad(), CRASHED, STOPPED)
    assert [type(action) for action in actions] == [ExcludeNode, StartRanks]
    assert state.past.failures == 1


def test_a_node_lost_while_they_save_is_probed() -> None:
    lost = RankLost(generation=1, rank=1, node="n2", detail="silent")
    _, actions = tell(*WITH_SPARE, bad(), lost, STOPPED)
    assert [type(action) for action in actions] == [ExcludeNode, ProbeNodes]


@pytest.mark.parametrize(
    "story",
    [
        (attempt(), bad()),  # the preflight looks itself
        (*RUNNING, bad("n9")),
        (*WITH_SPARE, bad("n3"), bad("n3")),
        (*RUNNING, NodesWatched(warnings=("load: high (n1)",))),
    ],
)
def test_it_changes_nothing(story: tuple[Event, ...]) -> None:
    assert tell(*story) == (tell(*story[:-1])[0], ())


def test_a_node_that_is_given_again_is_not_left_again() -> None:
    """Else the run would go from one allocation to the next and always meet it."""
    state, _ = tell(*RUNNING, bad(), SAVED, STOPPED)
    again = replace(attempt(), attempt="8.0", job_id="8")
    for event in (again, FINE, started(1), bad()):
        state, actions = step(state, event, POLICY, 0.0)
    assert (state.phase, actions) == (Phase.RUNNING, ())
    assert [one.node for one in state.degraded] == ["n2"]
