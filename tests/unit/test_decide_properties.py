"""Whatever happens in whatever order: the promises that the machine keeps."""

from __future__ import annotations

import errno

from hypothesis import given
from hypothesis import strategies as st
from promises import step

from relight.resilience.decide.actions import (
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    StartRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.codec import event_from_json, to_json
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    ExclusionForgotten,
    GpuMemoryStayed,
    LossNotFinite,
    NodeDegraded,
    NodesExamined,
    NodesProbed,
    NodesRejected,
    NodesWatched,
    PreflightFinished,
    ProbeUnanswered,
    RankExited,
    RankLost,
    RanksHung,
    RanksLingered,
    RanksStarted,
    RanksStopped,
    RanksStraggled,
    RestoreImpossible,
    SaveFailed,
    StartFailed,
    StopRequested,
    Superseded,
    ToldToSave,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import (
    CheckpointDrilled,
    CheckpointRestored,
    MetricMissing,
    StorageAnswered,
    StorageSilent,
    TierFailed,
    TierRead,
)

NODES = ("n1", "n2", "n3")
POLICY = Policy(nodes=2, tasks_per_node=1, not_finite="rollback")

generations = st.integers(1, 3)
nodes = st.sampled_from(NODES)
ranks = st.integers(0, 1)
evidence = st.dictionaries(nodes, st.just("evidence"), max_size=2)
exits = st.one_of(
    st.builds(
        RankExited,
        generation=generations,
        rank=ranks,
        node=nodes,
        code=st.sampled_from([0, 1, 3, 75]),
    ),
    st.builds(
        RankExited,
        generation=generations,
        rank=ranks,
        node=nodes,
        signal=st.sampled_from(["SIGKILL", "SIGSEGV"]),
        stopped=st.booleans(),
    ),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        PreflightFinished,
        bad=evidence,
        job_fault=st.just(None),
        silent=st.sampled_from([(), ("n2",)]),
        outage=st.sampled_from([None, None, "away"]),
    ),
    st.builds(RanksStarted, generation=generations, nodes=st.just(NODES), world_size=st.just(2)),
    st.builds(StartFailed, generation=generations, missing=st.just(("n1",)), detail=st.just("x")),
    exits,
    st.builds(RankLost, generation=generations, rank=ranks, node=nodes, detail=st.just("x")),
    st.builds(RanksStopped, generation=generations),
    st.builds(NodesRejected, bad=evidence),
    st.builds(NodesProbed, answered=st.just(NODES), silent=evidence, failed=evidence),
    st.builds(ProbeUnanswered, nodes=st.tuples(nodes), waited_s=st.just(1.0)),
    st.builds(NodesExamined, bad=evidence),
    st.builds(
        StopRequested,
        cause=st.sampled_from(StopCause),
        kill_at=st.sampled_from([None, 9.0]),
        evidence=st.just("x"),
    ),
    st.builds(
        RanksHung,
        generation=generations,
        ranks=st.just((0,)),
        nodes=st.just(("n1",)),
        detail=st.just("x"),
    ),
    st.builds(
        RanksStraggled,
        generation=generations,
        ranks=st.just((0,)),
        node=nodes,
        detail=st.just("x"),
        by_node=st.booleans(),
    ),
    st.builds(GpuMemoryStayed, generation=generations, held=evidence),
    st.builds(
        LossNotFinite,
        generation=generations,
        rank=ranks,
        node=nodes,
        since=st.integers(0, 9),
        detail=st.just("x"),
    ),
    st.builds(ToldToSave, generation=generations, signal=st.just("SIGUSR1")),
    st.builds(RanksLingered, generation=generations, ranks=st.just((0,)), detail=st.just("x")),
    st.builds(
        SaveFailed,
        step=st.just(1),
        reason=st.just("x"),
        node=nodes,
        errno=st.sampled_from([None, errno.EIO, errno.ENOSPC]),
    ),
    st.builds(StorageAnswered, waited_s=st.just(1.0)),
    st.builds(StorageSilent, waited_s=st.just(1.0), detail=st.just("x")),
    st.builds(CheckpointCommitted, step=st.integers(0, 9), generation=generations),
    st.builds(
        CheckpointRefused,
        generation=generations,
        step=st.integers(0, 9),
        reason=st.just("x"),
        node=nodes,
        sound=st.booleans(),
    ),
    st.builds(CheckpointDrilled, step=st.integers(0, 9), damage=st.sampled_from(["", "x"])),
    st.builds(MetricMissing, metric=st.just("x"), logged=st.just(("y",))),
    st.builds(NodeDegraded, node=nodes, evidence=st.just("x"), can_save=st.booleans()),
    st.builds(NodesWatched, warnings=st.just(("x",))),
    st.builds(ExclusionForgotten, node=nodes, reason=st.just("x")),
    st.builds(
        CheckpointRestored,
        generation=generations,
        step=st.just(1),
        size_bytes=st.just(9),
        seconds=st.just(0.5),
        slowest_rank=ranks,
    ),
    st.builds(TierRead, generation=generations, step=st.just(1), ranks=st.just((0,))),
    st.builds(TierFailed, generation=generations, rank=ranks, node=nodes, reason=st.just("x")),
    st.builds(Superseded, reason=st.just("x")),
    st.builds(RestoreImpossible, reason=st.just("x")),
    st.builds(AllocationArranged, mode=st.just("successor"), job_id=st.just("8")),
    st.builds(AllocationRefused, reason=st.just("x"), transient=st.booleans()),
)


def begin() -> AttemptStarted:
    return AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=NODES, batch_node="n1")


@given(st.lists(events, max_size=40))
def test_promises(story: list[Event]) -> None:
    state = State()
    requests, cancelled = 0, False
    for event in [begin(), *story]:
        state, actions = step(state, event, POLICY, 0.0)
        cancelled |= isinstance(event, StopRequested) and event.cause is StopCause.CANCELLED
        for action in actions:
            assert action.reason, "every order says why"
            if isinstance(action, StartRanks):
                assert not set(action.nodes) & set(state.excluded_nodes)
                assert not cancelled or state.stop is None
            if isinstance(action, RequestAllocation):
                requests += 1
        if state.phase is Phase.ENDED:
            assert any(isinstance(action, Finish) for action in actions)
            break
    assert requests <= 1, "never two authorities over the next allocation"


@given(st.lists(events, max_size=40))
def test_nothing_is_restarted_after_a_cancel(story: list[Event]) -> None:
    state = State()
    cancel = StopRequested(cause=StopCause.CANCELLED, kill_at=None, evidence="the user")
    state, _ = step(state, begin(), POLICY, 0.0)
    ended = False
    for event in [cancel, *story]:
        state, actions = step(state, event, POLICY, 0.0)
        for action in actions:
            assert not isinstance(action, StartRanks | RequestAllocation)
            if isinstance(action, Finish):
                ended = True
                assert action.outcome is not Outcome.RESTARTING
    assert ended


@given(events)
def test_events_survive_the_journal(event: Event) -> None:
    import json

    data = json.loads(json.dumps(to_json(event)))
    assert event_from_json(type(event).__name__, data) == event


@given(st.sampled_from([3, 137, 1]))
def test_it_always_ends(code: int) -> None:
    """A program that can never succeed, on nodes that can never be blamed."""
    state, actions = step(State(), begin(), POLICY, 0.0)
    for turn in range(200):
        if state.phase is Phase.ENDED:
            return
        event: Event
        if state.phase is Phase.PREFLIGHT:
            event = PreflightFinished(bad={})
        elif state.phase is Phase.STARTING:
            event = RanksStarted(generation=state.generation, nodes=NODES, world_size=2)
        elif state.phase is Phase.RUNNING:
            event = RankExited(generation=state.generation, rank=0, node="n1", code=code)
        else:
            event = RanksStopped(generation=state.generation)
        state, actions = step(state, event, POLICY, float(turn))
        assert not any(isinstance(action, ExcludeNode) for action in actions)
    raise AssertionError("no end in sight")
