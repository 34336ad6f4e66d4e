"""Whatever happens in whatever order: the promises that the machine keeps."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

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

NOW = 0  # in a story: the generation that runs
generations = st.sampled_from([NOW, NOW, NOW, 2])
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


BEGIN = AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=NODES, batch_node="n1")
# What usually comes next: of events by chance alone hardly a story comes to ranks that run.
USUAL: Mapping[Phase, Event] = {
    Phase.NEW: BEGIN,
    Phase.PREFLIGHT: PreflightFinished(bad={}),
    Phase.STARTING: RanksStarted(generation=NOW, nodes=NODES[:2], world_size=2),
    Phase.RUNNING: RankExited(generation=NOW, rank=0, node="n1", signal="SIGSEGV"),
    Phase.STOPPING: RanksStopped(generation=NOW),
    Phase.PROBING: NodesProbed(answered=NODES, silent={}),
    Phase.WAITING: StorageAnswered(waited_s=1.0),
    Phase.MOVING: AllocationArranged(mode="successor", job_id="8"),
    Phase.ENDED: RanksStopped(generation=NOW),
}
Story = list[Event | None]
stories: st.SearchStrategy[Story] = st.lists(
    st.tuples(st.booleans(), events).map(lambda drawn: drawn[1] if drawn[0] else None),
    min_size=10,
    max_size=40,
)


def next_of(event: Event | None, state: State) -> Event:
    """What the story says, or leaves to the state."""
    event = event or USUAL[state.phase]
    if state.phase is Phase.NEW:
        return BEGIN
    if getattr(event, "generation", None) != NOW:
        return event
    return replace(event, generation=state.generation)  # type: ignore[arg-type]


def test_promises() -> None:
    reached: Counter[str] = Counter()

    @given(stories)
    def keeps_them(story: Story) -> None:
        state, seen = State(), set()
        requests: list[RequestAllocation] = []
        for event in story:
            state, actions = step(state, next_of(event, state), POLICY, 0.0)
            requests += [action for action in actions if isinstance(action, RequestAllocation)]
            seen |= {state.phase, f"generation {state.generation}"}
            if state.phase is Phase.ENDED:
                assert any(isinstance(action, Finish) for action in actions)
                break
        told = [set(request.exclude) for request in requests]
        assert all(later != earlier for earlier, later in pairwise(told)), "the same again"
        reached.update(seen)

    keeps_them()
    assert reached["generation 2"] > 10, f"kept for want of anything to break them: {reached}"


@given(stories, stories)
def test_nothing_is_restarted_after_a_cancel(before: Story, after: Story) -> None:
    state = State()
    for event in before:
        state, _ = step(state, next_of(event, state), POLICY, 0.0)
    ended = state.phase is Phase.ENDED
    cancel = StopRequested(cause=StopCause.CANCELLED, kill_at=None, evidence="the user")
    settling = (RanksStopped(generation=NOW), AllocationRefused(reason="x"))
    for event in (cancel, *after, *settling):
        state, actions = step(state, next_of(event, state), POLICY, 0.0)
        for action in actions:
            assert not isinstance(action, StartRanks | RequestAllocation)
            assert not isinstance(action, Finish) or action.outcome is not Outcome.RESTARTING
    assert ended or state.phase is Phase.ENDED


@given(events)
def test_events_survive_the_journal(event: Event) -> None:
    import json

    data = json.loads(json.dumps(to_json(event)))
    assert event_from_json(type(event).__name__, data) == event


@given(st.sampled_from([3, 137, 1]))
def test_it_always_ends(code: int) -> None:
    """A program that can never succeed, on nodes that can never be blamed."""
    state, actions = step(State(), BEGIN, POLICY, 0.0)
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
