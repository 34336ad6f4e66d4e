"""Events that come at the wrong time: late, twice, of another generation, after the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    RequestAllocation,
    SetCheckpointAside,
    StopRanks,
)
from relight.resilience.decide.causes import FaultCause, StopCause
from relight.resilience.decide.events import (
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    NodesProbed,
    PreflightFinished,
    RankExited,
    RankLost,
    RanksHung,
    RanksLingered,
    RanksStarted,
    RanksStopped,
    SaveFailed,
    StartFailed,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import StorageAnswered, StorageSilent

POLICY = Policy(nodes=2, tasks_per_node=1)
BEGIN = AttemptStarted(
    attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2"), batch_node="n1"
)
FINE = PreflightFinished(bad={})
STARTED = RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2)
CRASHED = RankExited(generation=1, rank=0, node="n1", code=1)
ECHO = RankExited(generation=1, rank=1, node="n2", code=1)
LOST = RankLost(generation=1, rank=1, node="n2", detail="silent")
HUNG = RanksHung(generation=1, ranks=(1,), nodes=("n2",), detail="no step")
STOPPED = RanksStopped(generation=1)
PROBED = NodesProbed(answered=(), silent={"n2": "no answer"})
REFUSED = CheckpointRefused(generation=1, step=9, reason="block 3", node="n1")
PREEMPTED = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
REQUEUED = StopRequested(cause=StopCause.REQUEUED, kill_at=9.0, evidence="x")
NO_PLACE = AllocationRefused(reason="no")

NEW: tuple[Event, ...] = ()
PREFLIGHT = (BEGIN,)
STARTING = (BEGIN, FINE)
RUNNING = (BEGIN, FINE, STARTED)
MOVING = (*RUNNING, REQUEUED, STOPPED)
ENDED = (*MOVING, NO_PLACE)


def after(story: tuple[Event, ...]) -> tuple[State, tuple[Action, ...]]:
    state = State()
    actions: tuple[Action, ...] = ()
    for event in story:
        state, actions = step(state, event, POLICY, 0.0)
    return state, actions


@pytest.mark.parametrize(
    ("story", "event"),
    [
        (NEW, PREEMPTED),
        (PREFLIGHT, STARTED),
        (PREFLIGHT, CRASHED),
        (PREFLIGHT, LOST),
        (PREFLIGHT, REFUSED),
        (PREFLIGHT, STOPPED),
        (STARTING, FINE),
        (STARTING, PROBED),
        (STARTING, RanksStarted(generation=2, nodes=("n1", "n2"), world_size=2)),
        (STARTING, StartFailed(generation=2, missing=(), detail="x")),
        (STARTING, HUNG),
        (RUNNING, StartFailed(generation=1, missing=(), detail="x")),
        (RUNNING, RanksHung(generation=2, ranks=(1,), nodes=("n2",), detail="x")),
        (RUNNING, RankExited(generation=2, rank=0, node="n1", code=1)),
        (RUNNING, RankLost(generation=2, rank=0, node="n1", detail="x")),
        (RUNNING, RanksLingered(generation=1, ranks=(0,), detail="x")),
        (PREFLIGHT, SaveFailed(step=3, reason="x")),
        (RUNNING, StorageAnswered(waited_s=1.0)),
        (RUNNING, StorageSilent(waited_s=1.0, detail="x")),
        (RUNNING, STOPPED),
        (RUNNING, CheckpointCommitted(step=-1, generation=1)),
        ((*RUNNING, CRASHED), RanksLingered(generation=2, ranks=(0,), detail="x")),
        (ENDED, CRASHED),
        (ENDED, NO_PLACE),
        (ENDED, PREEMPTED),
    ],
)
def test_it_changes_nothing(story: tuple[Event, ...], event: Event) -> None:
    state, _ = after(story)
    assert after((*story, event)) == (state, ())


@pytest.mark.parametrize("late", [ECHO, LOST])
def test_ranks_that_are_being_stopped_are_not_stopped_again(late: Event) -> None:
    state, actions = after((*RUNNING, CRASHED, late))
    assert (state.phase, actions) == (Phase.STOPPING, ())


def test_a_loss_during_the_last_save_ends_the_ranks() -> None:
    _, actions = after((*RUNNING, PREEMPTED, LOST))
    assert [type(action) for action in actions] == [StopRanks]


def test_a_stop_that_comes_while_ranks_are_stopped_is_remembered() -> None:
    state, actions = after((*RUNNING, CRASHED, PREEMPTED))
    assert state.stop is not None
    assert [type(action) for action in actions] == [RequestAllocation]


def test_a_checkpoint_refused_while_ranks_are_stopped_is_set_aside_all_the_same() -> None:
    _, actions = after((*RUNNING, CRASHED, REFUSED))
    assert [type(action) for action in actions] == [SetCheckpointAside]


def test_a_refusal_by_an_earlier_generation_says_nothing_of_this_one() -> None:
    for sound in (False, True):
        story = (*RUNNING, CRASHED, STOPPED, replace(REFUSED, sound=sound))
        state, actions = after(story)
        assert (state.phase, state.generation, actions) == (Phase.STARTING, 2, ())


def test_a_rank_that_asks_for_a_restart_by_itself_has_failed() -> None:
    state, _ = after((*RUNNING, RankExited(generation=1, rank=0, node="n1", code=75)))
    assert state.fault is not None
    assert state.fault.cause is FaultCause.SELF_STOPPED


def test_a_checkpoint_that_is_committed_after_the_end_is_noted() -> None:
    state, actions = after((*ENDED, CheckpointCommitted(step=4, generation=1)))
    assert (state.committed_step, actions) == (4, ())
