"""Saves that fail and file systems that are away: what is waited for, and what ends a run."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    AwaitStorage,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.causes import FaultCause, StopCause
from relight.resilience.decide.events import (
    AttemptStarted,
    CheckpointCommitted,
    Event,
    LossNotFinite,
    NodesProbed,
    PreflightFinished,
    RankExited,
    RanksStarted,
    RanksStopped,
    SaveFailed,
    StartFailed,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.rules import Blame, Rule
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import StorageAnswered, StorageSilent

NODES = ("n1", "n2", "n3")
POLICY = Policy(nodes=2, tasks_per_node=1, preflight=False, outage_s=60.0)
BEGIN = AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=NODES, batch_node="n1")
BACK = StorageAnswered(waited_s=30.0)


def tell(
    events: Sequence[Event], state: State | None = None, policy: Policy = POLICY
) -> tuple[State, tuple[Action, ...]]:
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, policy, 0.0)
    return state, actions


def started(generation: int = 1) -> RanksStarted:
    return RanksStarted(generation=generation, nodes=("n1", "n2"), world_size=2)


def failed(number: int | None, *, node: str | None = "n1", at: int = 30) -> SaveFailed:
    return SaveFailed(step=at, reason="it said so", node=node, errno=number)


def test_a_save_that_a_later_one_has_made_needless_may_fail_when_it_is_tried_again() -> None:
    later = CheckpointCommitted(step=40, generation=1)
    _, actions = tell([*RUNNING, later, failed(errno.ENOENT), *done()])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED


def test_what_an_earlier_generation_has_committed_says_nothing_of_a_rolled_back_one() -> None:
    lost = LossNotFinite(generation=1, rank=0, node="n1", since=25, detail="loss is nan")
    saved = CheckpointCommitted(step=40, generation=1)
    story: list[Event] = [saved, lost, RanksStopped(generation=1), started(2), saved, failed(None)]
    state, _ = tell([*RUNNING, *story], policy=replace(POLICY, not_finite="rollback"))
    assert state.unsaved is not None


def done(generation: int = 1) -> list[Event]:
    return [
        RankExited(generation=generation, rank=rank, node=f"n{rank + 1}", code=0) for rank in (0, 1)
    ]


def only(actions: tuple[Action, ...]) -> Action:
    assert len(actions) == 1, actions
    return actions[0]


RUNNING: tuple[Event, ...] = (BEGIN, started())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES, None])
def test_ranks_go_on_after_a_save_that_failed(number: int | None) -> None:
    state, actions = tell([*RUNNING, failed(number)])
    assert (state.phase, actions) == (Phase.RUNNING, ())
    saved = CheckpointCommitted(step=40, generation=1)
    _, actions = tell([saved, *done()], state)
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("number", "cause", "advice"),
    [
        (errno.ENOSPC, FaultCause.DISK_FULL, "make room"),
        (errno.EDQUOT, FaultCause.QUOTA, "a larger quota"),
    ],
)
def test_a_run_whose_last_state_has_no_room_is_not_complete(
    number: int, cause: FaultCause, advice: str
) -> None:
    state, actions = tell([*RUNNING, failed(number), *done()])
    order = only(actions)
    assert isinstance(order, StopRanks)
    assert "not saved" in order.reason
    _, actions = tell([RanksStopped(generation=1)], state)
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code, end.cause) == (Outcome.STOPPED, 93, cause.value)
    assert advice in end.reason


def test_a_run_whose_last_state_was_not_saved_for_another_reason_is_tried_again() -> None:
    state, _ = tell([*RUNNING, failed(errno.EFBIG), *done(), RanksStopped(generation=1)])
    assert (state.phase, state.generation, state.failures) == (Phase.STARTING, 2, 1)
    _, actions = tell([started(2), *done(2)], state)
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED, "the fault of the generation before is over"


def test_an_outage_is_waited_out_and_costs_no_failure() -> None:
    state, actions = tell([*RUNNING, failed(errno.EIO), *done(), RanksStopped(generation=1)])
    order = only(actions)
    assert isinstance(order, AwaitStorage)
    assert order.limit_s == 60.0
    assert state.phase is Phase.WAITING
    state, actions = tell([BACK], state)
    assert isinstance(only(actions), StartRanks)
    assert (state.failures, state.idle_restarts) == (0, 0)


def test_a_file_system_that_comes_and_goes_is_one_outage_until_a_checkpoint_is_there() -> None:
    """A failover lets a probe through, and fails the start that follows."""
    state, _ = tell([*RUNNING, failed(errno.EIO), *done(), RanksStopped(generation=1)])
    back = StorageAnswered(waited_s=12.0)
    limits = []
    for generation in range(2, 6):
        away = StartFailed(generation=generation, missing=(), detail="gone", errno=errno.EIO)
        state, actions = tell([back, away, RanksStopped(generation=generation)], state)
        limits.append(only(actions).limit_s)  # type: ignore[union-attr]
    assert limits == [48.0, 36.0, 24.0, 12.0], "all waits together are no longer than one"
    for later, outage_s in ((BEGIN, state.outage_s), (replace(BEGIN, attempt="8.0"), 0.0)):
        assert tell([later], state)[0].outage_s == outage_s, "another job waits anew"
    saved = CheckpointCommitted(step=50, generation=6)
    state, _ = tell([back, started(6), saved], state)
    assert (state.outage_s, state.idle_restarts) == (0.0, 0)


def test_one_that_always_answers_and_never_serves_is_not_tried_for_ever() -> None:
    state, _ = tell([*RUNNING, failed(errno.EIO), *done(), RanksStopped(generation=1)])
    for generation in range(2, 10):
        away = StartFailed(generation=generation, missing=(), detail="gone", errno=errno.EIO)
        at_once = StorageAnswered(waited_s=0.1)
        state, _ = tell([at_once, away, RanksStopped(generation=generation)], state)
        if state.phase is Phase.ENDED:
            break
    assert state.idle_restarts == POLICY.no_progress + 1


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOENT, errno.EACCES])
def test_an_outage_at_the_start_is_waited_out_too(number: int) -> None:
    away = StartFailed(generation=1, missing=(), detail="no directory", errno=number)
    state, actions = tell([BEGIN, away])
    assert isinstance(only(actions), StopRanks)
    state, actions = tell([RanksStopped(generation=1)], state)
    assert isinstance(only(actions), AwaitStorage)
    state, _ = tell([BACK], state)
    assert (state.failures, state.generation) == (0, 2)


def test_an_outage_that_lasts_gives_the_nodes_back() -> None:
    state, _ = tell([*RUNNING, failed(errno.EIO), *done(), RanksStopped(generation=1)])
    silent = StorageSilent(waited_s=61.0, detail="no answer")
    state, actions = tell([silent], state)
    order = only(actions)
    assert isinstance(order, RequestAllocation)
    assert "61 s" in order.reason
    assert state.idle_restarts == 1, "not for ever"


def test_the_end_of_the_allocation_ends_the_wait() -> None:
    state, _ = tell([*RUNNING, failed(errno.EIO), *done(), RanksStopped(generation=1)])
    limit = StopRequested(cause=StopCause.TIME_LIMIT, kill_at=9.0, evidence="x")
    state, actions = tell([limit], state)
    assert isinstance(only(actions), RequestAllocation)
    assert tell([BACK], state) == (state, ())
    assert tell([StorageSilent(waited_s=1.0, detail="x")], state) == (state, ())


def outage(generation: int, *nodes: str) -> list[Event]:
    """The last save of a generation fails on these nodes."""
    return [
        started(generation),
        *(failed(errno.EIO, node=node) for node in nodes),
        *done(generation),
        RanksStopped(generation=generation),
    ]


def test_one_node_that_loses_the_file_system_twice_is_left() -> None:
    state, actions = tell([BEGIN, *outage(1, "n2")])
    assert isinstance(only(actions), AwaitStorage), "once says nothing of the node"
    _, actions = tell([BACK, *outage(2, "n2")], state)
    assert [one.node for one in actions if isinstance(one, ExcludeNode)] == ["n2"]


def test_what_several_nodes_see_is_no_nodes_fault() -> None:
    story = [BEGIN, *outage(1, "n1", "n2"), BACK, *outage(2, "n1", "n2"), BACK]
    state, _ = tell([*story, *outage(3, "n1", "n2")])
    assert not state.excluded
    assert not state.marks


def test_a_rank_that_dies_of_the_file_system_is_a_witness_too() -> None:
    rule = Rule(id="io", cause=FaultCause.FILESYSTEM, codes=(5,), blame=Blame.SUSPECT)
    policy = replace(POLICY, rules=(rule,))
    ends = [RankExited(generation=1, rank=rank, node=f"n{rank + 1}", code=5) for rank in (0, 1)]
    state, actions = tell([*RUNNING, *ends, RanksStopped(generation=1)], policy=policy)
    assert isinstance(only(actions), AwaitStorage)
    assert state.witnesses == {"n1", "n2"}
    assert not state.marks


def test_a_rank_whose_emergency_save_failed_may_try_again() -> None:
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    state, actions = tell([*RUNNING, preempted, failed(errno.ENOSPC)])
    assert actions == ()
    assert state.unsaved is not None
    assert "it said so" in state.unsaved.fault.evidence
    gave_up = RankExited(generation=1, rank=0, node="n1", code=1)
    _, actions = tell([gave_up], state)
    assert isinstance(only(actions), StopRanks)


def test_a_program_that_saves_nothing_is_not_brought_back_for_ever() -> None:
    policy = Policy(nodes=2, tasks_per_node=1, preflight=False, blind_attempts=2)
    state = State()
    for number in range(3):
        begin = AttemptStarted(
            attempt=f"{number}.0", job_id=str(number), restart_count=0, nodes=NODES, batch_node="n1"
        )
        state, actions = tell([begin, started()], state, policy)
        requeued = StopRequested(cause=StopCause.REQUEUED, kill_at=9.0, evidence="x")
        state, actions = tell([requeued, RanksStopped(generation=1)], state, policy)
        assert isinstance(only(actions), Finish if number == 2 else RequestAllocation)
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 93)
    assert "nothing was ever saved" in end.reason


def test_a_node_that_sends_no_report_is_asked_before_ranks_start_on_it() -> None:
    policy = Policy(nodes=2, tasks_per_node=1)
    state, actions = tell([BEGIN, PreflightFinished(bad={}, silent=("n2",))], policy=policy)
    assert state.phase is Phase.PROBING
    assert only(actions).reason
    alive = NodesProbed(answered=("n2",), silent={})
    after, actions = tell([alive], state, policy)
    assert isinstance(only(actions), StartRanks)
    assert (after.failures, after.node_failures) == (0, 0)
    dead = NodesProbed(answered=(), silent={"n2": "no answer"})
    after, actions = tell([dead], state, policy)
    assert isinstance(actions[-1], StartRanks)
    assert actions[-1].nodes == ("n1", "n3")
    assert (after.failures, after.node_failures) == (0, 1)


def test_a_step_that_starts_on_no_node_has_them_all_asked() -> None:
    state, _ = tell([BEGIN, StartFailed(generation=1, missing=(), detail="srun: no")])
    assert state.suspects == ("n1", "n2")


def test_an_older_step_that_is_committed_late_does_not_make_up_for_the_last() -> None:
    story = [*RUNNING, failed(errno.EIO, at=200), failed(errno.EIO, at=100)]
    late = CheckpointCommitted(step=100, generation=1)
    state, actions = tell([*story, late, *done()])
    assert isinstance(only(actions), StopRanks), "step 200 is not saved"
    assert state.unsaved is not None
    assert state.unsaved.step == 200
    _, actions = tell([*story, replace(late, step=200), *done()])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED
