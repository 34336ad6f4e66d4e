"""The machine on stories: what happens, and what it orders. Its length is the number of stories."""

from __future__ import annotations

from collections.abc import Sequence
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
    RunPreflight,
    SaveAndStop,
    SetCheckpointAside,
    StartRanks,
    StopRanks,
    Withdraw,
)
from relight.resilience.decide.causes import RestartWay, StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    NodesProbed,
    NodesRejected,
    PreflightFinished,
    RankExited,
    RankLost,
    RanksHung,
    RanksLingered,
    RanksStarted,
    RanksStopped,
    RestoreImpossible,
    SaveFailed,
    StartFailed,
    StopRequested,
    Superseded,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import CheckpointDrilled

POLICY = Policy(nodes=2, tasks_per_node=1)


def attempt(*nodes: str, name: str = "7.0", lost: str | None = None) -> AttemptStarted:
    job_id, _, restart = name.partition(".")
    return AttemptStarted(
        attempt=name,
        job_id=job_id,
        restart_count=int(restart),
        nodes=nodes or ("n1", "n2"),
        batch_node="n1",
        lost_batch_node=lost,
    )


def fine() -> PreflightFinished:
    return PreflightFinished(bad={})


def started(generation: int = 1) -> RanksStarted:
    return RanksStarted(generation=generation, nodes=("n1", "n2"), world_size=2)


def exited(
    rank: int,
    code: int | None = None,
    signal: str | None = None,
    generation: int = 1,
    *,
    stopped: bool = False,
    tail: tuple[str, ...] = (),
) -> RankExited:
    return RankExited(
        generation=generation,
        rank=rank,
        node=f"n{rank + 1}",
        code=code,
        signal=signal,
        stopped=stopped,
        tail=tail,
    )


def lost(rank: int, generation: int = 1) -> RankLost:
    return RankLost(generation=generation, rank=rank, node=f"n{rank + 1}", detail="silent")


def stop(cause: StopCause) -> StopRequested:
    return StopRequested(cause=cause, kill_at=100.0, evidence="because")


def tell(
    events: Sequence[Event], policy: Policy = POLICY, state: State | None = None, now: float = 0.0
) -> tuple[State, tuple[Action, ...]]:
    """The state after all events, and the actions of the last one."""
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, policy, now)
    return state, actions


RUNNING: tuple[Event, ...] = (attempt(), fine(), started())


def only(actions: tuple[Action, ...]) -> Action:
    assert len(actions) == 1, actions
    return actions[0]


def test_a_quiet_run_checks_starts_and_completes() -> None:
    _, first = tell([attempt()])
    assert isinstance(only(first), RunPreflight)
    _, second = tell([attempt(), fine()])
    order = only(second)
    assert isinstance(order, StartRanks)
    assert order.nodes == ("n1", "n2")
    state, half = tell([*RUNNING, exited(0, 0)])
    assert half == ()
    state, done = tell([exited(1, 0)], state=state)
    end = only(done)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code) == (Outcome.COMPLETED, 0)
    assert state.phase is Phase.ENDED


def test_preflight_can_be_off() -> None:
    _, actions = tell([attempt()], Policy(nodes=2, tasks_per_node=1, preflight=False))
    assert isinstance(only(actions), StartRanks)


def test_a_bad_node_is_replaced_by_a_spare_in_the_allocation() -> None:
    _, actions = tell([attempt("n1", "n2", "n3"), PreflightFinished(bad={"n1": "no memory"})])
    excluded, start = actions
    assert isinstance(excluded, ExcludeNode)
    assert isinstance(start, StartRanks)
    assert start.nodes == ("n2", "n3")


def test_without_a_spare_the_run_moves_and_avoids_the_bad_node() -> None:
    state, actions = tell([attempt(), PreflightFinished(bad={"n2": "disk full"})])
    move = actions[-1]
    assert isinstance(move, RequestAllocation)
    assert move.exclude == ("n2",)
    assert "disk full" in move.reason
    _, end = tell([AllocationArranged(mode="successor", job_id="8")], state=state)
    finish = only(end)
    assert isinstance(finish, Finish)
    assert (finish.outcome, finish.exit_code) == (Outcome.RESTARTING, 75)


def test_a_fault_of_the_job_seen_by_preflight_ends_it() -> None:
    _, actions = tell([attempt(), PreflightFinished(bad={}, job_fault="no such directory")])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.FAILED


def test_a_killed_rank_is_restarted_in_place_at_once() -> None:
    state, actions = tell([*RUNNING, exited(1, signal="SIGKILL")])
    assert isinstance(only(actions), StopRanks)
    _, again = tell(
        [exited(0, signal="SIGKILL", stopped=True), RanksStopped(generation=1)], state=state
    )
    order = only(again)
    assert isinstance(order, StartRanks)
    assert (order.generation, order.nodes, order.delay_s) == (2, ("n1", "n2"), 0.0)
    assert "SIGKILL" in order.reason


def test_the_killed_rank_is_the_cause_and_not_the_peer_that_noticed() -> None:
    echo = exited(0, 1, tail=("RuntimeError: Connection closed by peer [10.0.0.2]",))
    state, _ = tell([*RUNNING, echo, exited(1, signal="SIGKILL")])
    assert state.fault is not None
    assert state.fault.rank == 1


def test_a_program_that_always_fails_ends_after_its_budget_with_its_last_lines() -> None:
    state, actions = tell([attempt(), fine()])
    starts = 0
    while not isinstance(only(actions), Finish):
        starts += 1
        generation = state.generation
        story: list[Event] = [
            started(generation),
            exited(0, 3, generation=generation, tail=("no idea",)),
            RanksStopped(generation=generation),
        ]
        state, actions = tell(story, state=state)
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code, starts) == (Outcome.FAILED, 1, 1 + POLICY.failures)
    assert end.tail == ("no idea",)
    assert "exited with code 3" in end.reason


def test_restarts_after_failures_wait_longer_each_time() -> None:
    assert [POLICY.backoff_s(failures) for failures in range(5)] == [0.0, 0.0, 1.0, 2.0, 4.0]
    assert POLICY.backoff_s(60) == POLICY.backoff_max_s


def test_a_new_checkpoint_resets_the_budget() -> None:
    state, _ = tell([*RUNNING, exited(0, 3), RanksStopped(generation=1)])
    assert (state.failures, state.idle_restarts) == (1, 1)
    state, _ = tell([started(2), CheckpointCommitted(step=5, generation=2)], state=state)
    assert (state.failures, state.idle_restarts, state.committed_step) == (0, 0, 5)
    state, _ = tell([CheckpointCommitted(step=4, generation=2)], state=state)
    assert state.committed_step == 5


def test_a_silent_agent_makes_its_node_a_suspect_and_a_probe_decides() -> None:
    state, actions = tell([*RUNNING, lost(1)])
    assert isinstance(only(actions), StopRanks)
    state, actions = tell([RanksStopped(generation=1)], state=state)
    order = only(actions)
    assert isinstance(order, ProbeNodes)
    assert order.nodes == ("n2",)
    _, innocent = tell([NodesProbed(answered=("n2",), silent={})], state=state)
    assert isinstance(only(innocent), StartRanks)
    after, guilty = tell([NodesProbed(answered=(), silent={"n2": "no answer"})], state=state)
    assert [type(action) for action in guilty] == [ExcludeNode, RequestAllocation]
    assert after.failures == 0, "the loss of a node is not the program's failure"


def test_a_lost_node_with_a_spare_goes_on_in_the_allocation() -> None:
    state, _ = tell(
        [attempt("n1", "n2", "n3"), fine(), started(), lost(1), RanksStopped(generation=1)]
    )
    _, actions = tell([NodesProbed(answered=(), silent={"n2": "no answer"})], state=state)
    start = actions[-1]
    assert isinstance(start, StartRanks)
    assert start.nodes == ("n1", "n3")


@pytest.mark.parametrize("cause", [StopCause.HELD, StopCause.REQUEUED])
def test_the_end_of_an_allocation_saves_and_moves(cause: StopCause) -> None:
    state, actions = tell([*RUNNING, stop(cause)])
    order = only(actions)
    assert isinstance(order, SaveAndStop)
    assert order.kill_at == 100.0
    saved: list[Event] = [exited(0, 75), exited(1, 75), RanksStopped(generation=1)]
    state, actions = tell(saved, state=state)
    assert isinstance(only(actions), RequestAllocation)
    assert state.failures == 0


@pytest.mark.parametrize("next_", [RanksStopped(generation=1), attempt()])
def test_a_cancelled_run_is_never_restarted(next_: Event) -> None:
    """Nor when its supervisor ends in the save, and lives again."""
    _, actions = tell([*RUNNING, stop(StopCause.CANCELLED), next_])
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code) == (Outcome.CANCELLED, 93)


def test_a_cancel_beats_a_preemption_that_came_first() -> None:
    _, actions = tell(
        [*RUNNING, stop(StopCause.PREEMPTED), stop(StopCause.CANCELLED), RanksStopped(generation=1)]
    )
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.CANCELLED


def test_a_cancel_while_a_new_allocation_is_arranged_takes_it_back() -> None:
    moving: list[Event] = [*RUNNING, stop(StopCause.PREEMPTED), RanksStopped(generation=1)]
    _, actions = tell(
        [*moving, stop(StopCause.CANCELLED), AllocationArranged(mode="successor", job_id="8")]
    )
    assert [type(action) for action in actions] == [Withdraw, Finish]


def test_signals_that_our_own_requeue_brings_do_not_change_the_cause() -> None:
    moving: list[Event] = [*RUNNING, stop(StopCause.PREEMPTED), RanksStopped(generation=1)]
    arranged = AllocationArranged(mode="requeue", job_id="7")
    _, actions = tell([*moving, stop(StopCause.REQUEUED), arranged])
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.cause) == (Outcome.RESTARTING, "preempted")


@pytest.mark.parametrize(
    ("mode", "outcome", "words"),
    [
        ("successor", Outcome.RESTARTING, "goes on as job 8 (successor)"),
        ("here", Outcome.RESTARTING, "goes on in another attempt here"),
        ("by hand", Outcome.INTERRUPTED, "waits for a person: `relight run --resume` goes on"),
    ],
)
def test_how_the_run_goes_on_is_said_as_it_is(
    mode: RestartWay, outcome: Outcome, words: str
) -> None:
    moving: list[Event] = [*RUNNING, stop(StopCause.HELD), RanksStopped(generation=1)]
    _, actions = tell([*moving, AllocationArranged(mode=mode, job_id="8")])
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code, end.reason) == (outcome, 75, words)


def test_a_stop_nobody_explains_is_not_restarted_on_our_word() -> None:
    _, actions = tell([*RUNNING, stop(StopCause.UNKNOWN), RanksStopped(generation=1)])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.INTERRUPTED


def test_a_bare_signal_saves_and_goes_on_in_place() -> None:
    state, actions = tell([*RUNNING, stop(StopCause.SIGNALLED)])
    assert isinstance(only(actions), SaveAndStop)
    state, actions = tell([exited(0, 75), exited(1, 75), RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), StartRanks)
    assert state.stop is None


def test_a_second_signal_changes_nothing() -> None:
    _, actions = tell([*RUNNING, stop(StopCause.PREEMPTED), stop(StopCause.PREEMPTED)])
    assert actions == ()


def test_a_stop_before_ranks_run_has_nothing_to_save() -> None:
    _, during_preflight = tell([attempt(), stop(StopCause.PREEMPTED)])
    assert isinstance(only(during_preflight), RequestAllocation)
    _, during_start = tell([attempt(), fine(), stop(StopCause.PREEMPTED)])
    assert isinstance(only(during_start), StopRanks)


def test_an_emergency_save_that_will_not_come_ends_the_ranks() -> None:
    silent = SaveFailed(step=None, reason="ranks [1] did not answer")
    _, actions = tell([*RUNNING, stop(StopCause.PREEMPTED), silent])
    order = only(actions)
    assert isinstance(order, StopRanks)
    assert "ranks [1] did not answer" in order.reason


@pytest.mark.parametrize("told", [(), (stop(StopCause.PREEMPTED),)])
def test_a_periodic_save_that_fails_stops_neither_training_nor_the_emergency_save(
    told: tuple[Event, ...],
) -> None:
    _, actions = tell([*RUNNING, *told, SaveFailed(step=3, reason="ENOSPC")])
    assert actions == ()


def test_a_rank_that_swallows_the_order_to_end_has_not_done_its_work() -> None:
    """``except BaseException`` around the steps, then a normal end."""
    ends = [replace(exited(rank, 0), unfinished=True) for rank in (0, 1)]
    over = RanksStopped(generation=1)
    _, actions = tell([*RUNNING, stop(StopCause.REQUEUED), *ends, over])
    assert isinstance(only(actions), RequestAllocation)


def test_who_leaves_its_steps_early_may_do_so_and_is_named() -> None:
    _, actions = tell([*RUNNING, replace(exited(1, 0), unfinished=True), exited(0, 0)])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.COMPLETED
    assert end.reason.endswith("ranks [1] before the last of their steps")


def test_a_crash_after_a_bare_signal_counts_as_any_other() -> None:
    story: list[Event] = list(RUNNING)
    for generation in range(1, 5):
        bare, crash = stop(StopCause.SIGNALLED), exited(1, 1, generation=generation)
        story += [bare, crash, RanksStopped(generation=generation), started(generation + 1)]
    _, actions = tell(story[:-1])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.FAILED


def test_ranks_that_start_again_know_what_they_must_find() -> None:
    saved = CheckpointCommitted(step=30, generation=1)
    _, actions = tell([*RUNNING, saved, exited(1, 1), RanksStopped(generation=1)])
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.committed_step == 30


def test_a_hang_shows_stacks_and_one_node_behind_all_others_is_probed() -> None:
    hung = RanksHung(generation=1, ranks=(1,), nodes=("n2",), detail="no step in 90 s")
    state, actions = tell([*RUNNING, hung])
    order = only(actions)
    assert isinstance(order, StopRanks)
    assert order.stacks
    state, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), ProbeNodes)
    everywhere = RanksHung(generation=1, ranks=(0, 1), nodes=("n1", "n2"), detail="no step")
    _, actions = tell([*RUNNING, everywhere, RanksStopped(generation=1)])
    assert isinstance(only(actions), StartRanks)
    _, ignored = tell([attempt(), fine(), hung])
    assert ignored == ()


def test_ranks_that_hang_after_their_save_are_ended() -> None:
    lingered = RanksLingered(generation=1, ranks=(1,), detail="step 9 is saved")
    state, actions = tell([*RUNNING, stop(StopCause.REQUEUED), lingered])
    assert isinstance(only(actions), StopRanks)
    _, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), RequestAllocation)
    _, ignored = tell([*RUNNING, lingered])
    assert ignored == ()


def test_a_rank_that_crashes_while_saving_ends_the_others() -> None:
    state, actions = tell([*RUNNING, stop(StopCause.REQUEUED), exited(0, signal="SIGSEGV")])
    assert isinstance(only(actions), StopRanks)
    _, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), RequestAllocation)


def test_a_damaged_checkpoint_is_set_aside_by_all_ranks_together_and_is_free() -> None:
    state, actions = tell(
        [*RUNNING, CheckpointRefused(generation=1, step=9, reason="block 3", node="n1")]
    )
    assert [type(action) for action in actions] == [SetCheckpointAside, StopRanks]
    state, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), StartRanks)
    assert state.failures == 0


def test_a_checkpoint_that_a_drill_finds_damaged_is_set_aside_and_the_ranks_go_on() -> None:
    damaged = CheckpointDrilled(step=9, damage="block 3")
    state, actions = tell([*RUNNING, damaged])
    assert only(actions) == SetCheckpointAside(step=9, reason="block 3")
    assert state.phase is Phase.RUNNING
    for ignored in ([*RUNNING, CheckpointDrilled(step=9)], [damaged]):
        assert tell(ignored)[1] == ()
    between = [*RUNNING, stop(StopCause.HELD), RanksStopped(generation=1), damaged]
    state, actions = tell(between)
    assert (state.phase, only(actions)) == (
        Phase.MOVING,
        SetCheckpointAside(step=9, reason="block 3"),
    )


def test_a_checkpoint_that_only_one_node_cannot_read_stays_and_the_node_is_asked() -> None:
    refused = CheckpointRefused(generation=1, step=9, reason="ESTALE", node="n2", sound=True)
    state, actions = tell([*RUNNING, refused])
    assert isinstance(only(actions), StopRanks)
    _, again = tell([refused], state=state)
    assert again == ()
    _, actions = tell([RanksStopped(generation=1)], state=state)
    order = only(actions)
    assert isinstance(order, ProbeNodes)
    assert order.nodes == ("n2",)


def test_without_the_library_that_reads_a_checkpoint_no_restart_is_tried() -> None:
    refused = CheckpointRefused(
        generation=1, step=9, reason="needs zstandard", node="n2", sound=True, lacking=True
    )
    for before in ([*RUNNING], [*RUNNING, exited(0, 1)]):
        _, actions = tell([*before, refused, RanksStopped(generation=1)])
        (end,) = [action for action in actions if isinstance(action, Finish)]
        assert end.outcome is Outcome.STOPPED
        assert "n2 cannot read checkpoint 9: needs zstandard" in end.reason


@pytest.mark.parametrize(
    ("other_run", "outcome"), [("", Outcome.INTERRUPTED), ("lm-9", Outcome.STOPPED)]
)
def test_who_is_superseded_ends_without_a_verdict_unless_by_another_run(
    other_run: str, outcome: Outcome
) -> None:
    lost = Superseded(reason="a later epoch was claimed", other_run=other_run)
    _, (stopped, end) = tell([*RUNNING, lost])
    assert isinstance(stopped, StopRanks), "they would be in the way of who goes on"
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code) == (outcome, 93)
    _, actions = tell([attempt(), lost])
    assert isinstance(only(actions), Finish)


def test_a_scheduler_that_is_silent_leaves_the_way_back_open() -> None:
    moving: list[Event] = [*RUNNING, stop(StopCause.PREEMPTED), RanksStopped(generation=1)]
    _, actions = tell([*moving, AllocationRefused(reason="no answer", transient=True)])
    end = only(actions)
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code) == (Outcome.INTERRUPTED, 75)
    refused = AllocationRefused(reason="the run was cancelled")
    _, actions = tell([*moving, stop(StopCause.CANCELLED), refused])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.CANCELLED


def test_a_stop_that_nobody_explains_and_nobody_enforces_is_a_bare_signal() -> None:
    quiet = StopRequested(cause=StopCause.UNKNOWN, kill_at=None, evidence="no answer")
    state, actions = tell([*RUNNING, quiet])
    assert isinstance(only(actions), SaveAndStop)
    _, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), StartRanks)


def test_a_bare_signal_while_no_rank_runs_changes_nothing() -> None:
    signalled = stop(StopCause.SIGNALLED)
    stories: tuple[list[Event], ...] = ([attempt()], [attempt(), fine()])
    for story in stories:
        before, _ = tell(story)
        assert tell([signalled], state=before) == (before, ())


def test_a_late_end_of_an_older_generation_does_not_end_the_newer_one() -> None:
    before, _ = tell(
        [*RUNNING, exited(0, 3), RanksStopped(generation=1), started(2), exited(0, 3, generation=2)]
    )
    assert tell([RanksStopped(generation=1)], state=before) == (before, ())


def test_checkpoints_of_which_none_is_valid_stop_the_run() -> None:
    _, actions = tell([attempt(), fine(), RestoreImpossible(reason="all damaged")])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.exit_code == 93


def test_a_start_that_fails_on_one_node_makes_it_a_suspect() -> None:
    state, actions = tell(
        [attempt(), fine(), StartFailed(generation=1, missing=("n2",), detail="1 of 2")]
    )
    assert isinstance(only(actions), StopRanks)
    _, actions = tell([RanksStopped(generation=1)], state=state)
    assert isinstance(only(actions), ProbeNodes)


def test_a_refused_allocation_stops_the_run_and_says_why() -> None:
    moving: list[Event] = [*RUNNING, stop(StopCause.REQUEUED), RanksStopped(generation=1)]
    _, actions = tell([*moving, AllocationRefused(reason="QOS limit")])
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.outcome is Outcome.STOPPED
    assert "QOS limit" in end.reason


def test_restart_never_means_never() -> None:
    policy = Policy(nodes=2, tasks_per_node=1, restart="never")
    _, actions = tell([*RUNNING, stop(StopCause.PREEMPTED), RanksStopped(generation=1)], policy)
    assert isinstance(only(actions), Finish)


def test_the_wall_time_of_the_whole_run_is_capped() -> None:
    policy = Policy(nodes=2, tasks_per_node=1, walltime_s=50.0)
    state, _ = tell([*RUNNING, stop(StopCause.PREEMPTED)], policy, now=0.0)
    _, actions = tell([RanksStopped(generation=1)], policy, state, now=51.0)
    end = only(actions)
    assert isinstance(end, Finish)
    assert "walltime" in end.reason


def test_what_was_learned_outlives_the_attempt() -> None:
    saved = CheckpointCommitted(step=5, generation=1)
    bad = PreflightFinished(bad={"n1": "bad"})
    state, _ = tell([attempt("n1", "n2", "n3"), bad, started(), saved])
    state, actions = tell([attempt("n2", "n3", name="7.1")], state=state)
    assert state.excluded_nodes == ("n1",)
    assert state.idle_restarts == 1, "its supervisor vanished while ranks ran"
    assert state.generation == 0
    assert isinstance(only(actions), RunPreflight)


def test_a_supervisor_that_lives_again_counts_its_generations_on() -> None:
    state, actions = tell([*RUNNING, attempt(), fine()])
    order = only(actions)
    assert isinstance(order, StartRanks)
    assert order.generation == 2
    assert state.idle_restarts == 1


def test_a_supervisor_that_lives_again_knows_the_successor_that_waits() -> None:
    arranged = AllocationArranged(mode="successor", job_id="8")
    before = [*RUNNING, stop(StopCause.TIME_LIMIT), arranged]
    story = [*before, attempt(), PreflightFinished(bad={"n1": "bad"})]
    state, actions = tell(story)
    order = only(actions[1:])
    assert isinstance(order, RequestAllocation), "it may start on n1"
    assert order.exclude == ("n1",)
    _, actions = tell([arranged], state=state)
    end = only(actions)
    assert isinstance(end, Finish)
    assert end.reason == "goes on as job 8 (successor)"


def test_a_batch_host_that_is_down_is_excluded_by_the_next_attempt() -> None:
    state, _ = tell([*RUNNING])
    state, actions = tell([attempt("n3", "n4", name="7.1", lost="n1")], state=state)
    assert isinstance(actions[0], ExcludeNode)
    assert state.excluded_nodes == ("n1",)


def test_late_words_of_an_older_generation_are_ignored() -> None:
    state, _ = tell([*RUNNING, exited(0, 3), RanksStopped(generation=1), started(2)])
    same, actions = tell([exited(1, 3, generation=1), lost(0, generation=1)], state=state)
    assert (same, actions) == (state, ())


# What a user wants


def test_hold_saves_and_asks_for_a_new_allocation_without_a_charge() -> None:
    state, _ = tell([*RUNNING, CheckpointCommitted(step=5, generation=1)])
    state, orders = tell([stop(StopCause.HELD)], state=state)
    assert [type(order) for order in orders] == [SaveAndStop]
    state, orders = tell([RanksStopped(generation=1)], state=state)
    assert [type(order) for order in orders] == [RequestAllocation]
    assert state.idle_restarts == 0


def test_a_preemption_outranks_a_hold() -> None:
    state, _ = tell([*RUNNING, stop(StopCause.HELD), stop(StopCause.PREEMPTED)])
    assert state.stop is not None
    assert state.stop.cause is StopCause.PREEMPTED


def test_restart_without_a_node_takes_the_spare() -> None:
    rejected = NodesRejected(bad={"n2": "relight restart was called"})
    state, orders = tell([attempt("n1", "n2", "n3"), fine(), started(), rejected])
    assert [type(order) for order in orders] == [ExcludeNode]
    assert state.phase is Phase.RUNNING
    _, orders = tell([stop(StopCause.SIGNALLED), RanksStopped(generation=1)], state=state)
    (order,) = orders
    assert isinstance(order, StartRanks)
    assert order.nodes == ("n1", "n3")


def test_restart_without_a_node_and_without_a_spare_goes_elsewhere() -> None:
    rejected = NodesRejected(bad={"n2": "relight restart was called"})
    _, orders = tell([*RUNNING, rejected, stop(StopCause.SIGNALLED), RanksStopped(generation=1)])
    (order,) = orders
    assert isinstance(order, RequestAllocation)
    assert order.exclude == ("n2",)
