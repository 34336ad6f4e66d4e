"""The decisions: one event in, the next state and the actions out.

Pure: no clock (``now`` is passed in, Unix seconds), no IO. How a run comes back once its ranks have
stopped is in ``ways_back``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from ..exit_codes import EXIT_FAILED, EXIT_STOP
from .actions import (
    Action,
    Outcome,
    RollBack,
    RunPreflight,
    StopRanks,
)
from .blame import PREFLIGHT, judge, not_the_nodes, untested
from .budgets import charge, charge_attempt, forgive
from .causes import FaultCause, StopCause
from .classify import of_the_program
from .degrade import leave_degraded, node_degraded
from .events import (
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
    Notified,
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
from .moving import allocation_arranged, allocation_refused, given_again
from .outage import await_storage, storage_answered, storage_silent
from .past import remember
from .policy import Policy
from .probing import ask, for_preflight, nodes_probed, not_asked, probe_unanswered
from .rules import Blame, Budget
from .state import Phase, State
from .storage_events import (
    CheckpointArchived,
    CheckpointDrilled,
    CheckpointFetched,
    CheckpointRestored,
    MetricMissing,
    StorageAnswered,
    StorageSilent,
    TierFailed,
    TierRead,
)
from .told_to_stop import ranks_lingered, stop_requested, told_to_save
from .ways_back import (
    USER,
    Decision,
    cause_of_fault,
    come_back,
    exclude,
    finish,
    leave,
    out_of_budget,
    start,
)
from .while_running import (
    RANKS_ALIVE,
    checkpoint_committed,
    checkpoint_drilled,
    checkpoint_refused,
    gpu_memory_stayed,
    loss_not_finite,
    rank_exited,
    rank_lost,
    ranks_hung,
    ranks_started,
    ranks_straggled,
    save_failed,
    start_failed,
)

_AFTER_THE_END: Final = (AttemptStarted, CheckpointCommitted, AllocationArranged)
_UNDER_WAY: Final = (Phase.PREFLIGHT, *RANKS_ALIVE, Phase.PROBING, Phase.WAITING)


def step(state: State, event: Event, policy: Policy, now: float) -> Decision:
    """The next state and the orders that follow from ``event``; after the end there are none."""
    nodes = event.nodes if isinstance(event, AttemptStarted) else state.nodes
    after, orders = _decide(state, event, policy.within(nodes), now)
    if after is state:  # the event came too late, or too early
        return state, orders
    told = state.stop.cause if state.stop is not None else None
    # A mistake in the program comes back whatever was saved: it says nothing of chance.
    failed = state.fault is not None and state.fault.cause is not FaultCause.USER_ERROR
    past = remember(state.past, event, now, failed=failed, told=told)
    return replace(after, past=past), orders


def _decide(state: State, event: Event, policy: Policy, now: float) -> Decision:
    if state.phase is Phase.ENDED and not isinstance(event, _AFTER_THE_END):
        return state, ()
    match event:
        case AttemptStarted():
            return _attempt_started(state, event, policy, now)
        case PreflightFinished():
            return _preflight_finished(state, event, policy, now)
        case RanksStarted():
            return ranks_started(state, event)
        case StartFailed():
            return start_failed(state, event)
        case RankExited():
            return rank_exited(state, event, policy)
        case RankLost():
            return rank_lost(state, event)
        case RanksHung():
            return ranks_hung(state, event)
        case RanksStraggled():
            return ranks_straggled(state, event)
        case GpuMemoryStayed():
            return gpu_memory_stayed(state, event, policy)
        case LossNotFinite():
            return loss_not_finite(state, event, policy)
        case RanksStopped():
            return _ranks_stopped(state, event, policy, now)
        case NodesProbed():
            return nodes_probed(state, event, policy, now)
        case ProbeUnanswered():
            return probe_unanswered(state, event, policy, now)
        case NodesRejected():
            return exclude(state, event.bad, USER)
        case NodeDegraded():
            return node_degraded(state, event, policy, now)
        case (
            NodesWatched()
            | ExclusionForgotten()
            | NodesExamined()
            | Notified()
            | TierFailed()
            | TierRead()
            | CheckpointRestored()
            | CheckpointArchived()
            | CheckpointFetched()
            | MetricMissing()
        ):
            return state, ()  # only for people
        case StopRequested():
            return stop_requested(state, event, policy, now)
        case ToldToSave():
            return told_to_save(state, event)
        case SaveFailed():
            return save_failed(state, event)
        case RanksLingered():
            return ranks_lingered(state, event)
        case CheckpointCommitted():
            return checkpoint_committed(state, event)
        case CheckpointRefused():
            return checkpoint_refused(state, event)
        case CheckpointDrilled():
            return checkpoint_drilled(state, event)
        case StorageAnswered():
            return storage_answered(state, event, policy, now, PREFLIGHT)
        case StorageSilent():
            return storage_silent(state, event, policy, now)
        case RestoreImpossible():
            reason = f"nothing to go on from: {event.reason}"
            return finish(
                state, Outcome.STOPPED, EXIT_STOP, FaultCause.CHECKPOINT_DAMAGED.value, reason
            )
        case AllocationArranged():
            return allocation_arranged(state, event)
        case AllocationRefused():
            return allocation_refused(state, event, policy, now)
        case Superseded():
            return _superseded(state, event)
        case _:
            assert_never(event)


def _superseded(state: State, event: Superseded) -> Decision:
    """Ranks that go on would only be in the way of those who have the directory now."""
    outcome = Outcome.STOPPED if event.other_run else Outcome.INTERRUPTED
    after, orders = finish(state, outcome, EXIT_STOP, "superseded", event.reason)
    stop = (StopRanks(reason=event.reason),) if state.phase in RANKS_ALIVE else ()
    return after, (*stop, *orders)


# An attempt begins


def _attempt_started(state: State, event: AttemptStarted, policy: Policy, now: float) -> Decision:
    same = state.attempt == event.attempt  # a later life of the supervisor
    if same and state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        return leave(state, policy, now)  # the one before has heard it, and may be the only one
    if state.phase in _UNDER_WAY:  # the last supervisor ended without a word
        state = charge(state, Budget.FREE) if same else charge_attempt(state)
    if event.resumed:
        state = forgive(state)
    begun = State(
        excluded=state.excluded,
        committed_step=max(state.committed_step, event.committed_step),
        failures=state.failures,
        idle_restarts=state.idle_restarts,
        node_failures=state.node_failures,
        blind_attempts=state.blind_attempts,
        marks=state.marks,
        first_started=now if state.first_started is None else state.first_started,
        attempt=event.attempt,
        batch_node=event.batch_node,
        nodes=event.nodes,
        active=state.active if same and policy.keep_places else (),
        generation=state.generation if same else 0,
        outage_s=state.outage_s if same else 0.0,
        last_choice=state.last_choice if same else (),
        kept=state.kept if same else frozenset(),
        arranged=state.arranged if same else None,
        avoided=state.avoided if same else (),
    )
    actions: tuple[Action, ...] = ()
    if event.lost_batch_node is not None:
        evidence = "the supervisor of the previous attempt vanished and the scheduler says down"
        begun, actions = exclude(
            begun, {event.lost_batch_node: evidence}, FaultCause.NODE_DOWN.value
        )
    spent = out_of_budget(begun, policy, now)
    if spent is not None:
        begun, more = finish(begun, Outcome.STOPPED, EXIT_STOP, FaultCause.NO_PROGRESS.value, spent)
        return begun, (*actions, *more)
    # What this attempt has left itself, nobody has given again.
    begun, told = (begun, "") if same else given_again(begun, policy)
    if policy.preflight and len(begun.healthy) >= policy.least_nodes:
        reason = told or "no rank starts on a node nobody looked at"
        order = RunPreflight(nodes=for_preflight(begun, policy), reason=reason)
        return replace(begun, phase=Phase.PREFLIGHT), (*actions, order)
    begun, more = start(begun, policy, now, told or "the allocation is there")
    return begun, (*actions, *more)


def _preflight_finished(
    state: State, event: PreflightFinished, policy: Policy, now: float
) -> Decision:
    if state.phase is not Phase.PREFLIGHT:
        return state, ()
    if event.job_fault is not None:
        reason = f"preflight: {event.job_fault}"
        return finish(state, Outcome.FAILED, EXIT_FAILED, PREFLIGHT, reason)
    if event.outage is not None:
        return await_storage(state, policy, f"no other node cures it: {event.outage}")
    state, excluded = exclude(state, event.bad, PREFLIGHT)
    if excluded:
        state = charge(state, Budget.NODE)
    state = _doubted(state, event, policy)
    if event.silent:
        state, asked = ask(state, event.silent, "no report came from them")
        return state, (*excluded, *asked)
    if common := not_the_nodes(state):
        state, more = finish(state, Outcome.FAILED, EXIT_FAILED, PREFLIGHT, common)
        return state, (*excluded, *more)
    state, more = start(state, policy, now, "preflight is done")
    return state, (*excluded, *more)


def _doubted(state: State, event: PreflightFinished, policy: Policy) -> State:
    """It may not be the nodes, but ranks need not find that out while others pass."""
    if len(set(state.healthy).difference(event.doubted)) >= policy.nodes:
        for node, evidence in event.doubted.items():
            state = state.chosen_last(node, PREFLIGHT, evidence)
    return state


# After all ranks have stopped


def _ranks_stopped(state: State, event: RanksStopped, policy: Policy, now: float) -> Decision:
    if state.phase is not Phase.STOPPING or event.generation != state.generation:
        return state, ()
    state = _fault_of_all(state, policy)
    state, guilty = judge(state, policy)
    state, excluded = exclude(state, guilty, cause_of_fault(state))
    state, left = leave_degraded(state, policy, now)
    back = _rolled_back(state)
    if state.stop is not None and state.stop.ends_allocation:
        state, more = leave(not_asked(state), policy, now)
    elif state.suspects:
        state, more = ask(state, state.suspects, "a node is blamed on evidence only")
    elif node := untested(state):
        reason = f"hardware may have failed, {node} is tested before it is used again"
        state, more = ask(state, (node,), reason, work=True)
    elif state.fault is not None and state.fault.cause is FaultCause.FILESYSTEM:
        reason = f"no restart and no other node cures it: {state.fault.evidence}"
        state, more = await_storage(state, policy, reason)
    else:
        state, more = come_back(state, policy, now)
    return state, (*excluded, *left, *back, *more)


def _rolled_back(state: State) -> tuple[Action, ...]:
    """Now that no save is under way any more."""
    if state.spoilt is None or state.fault is None:
        return ()
    return (RollBack(step=state.spoilt, reason=state.fault.evidence),)


def _fault_of_all(state: State, policy: Policy) -> State:
    """What every rank on every node has failed by is the fault of none of them."""
    fault, ranks = state.fault, policy.ranks_on(len(state.active))
    if fault is None or fault.cascade or fault.blame is Blame.NODE:
        return state
    if state.alike < ranks or not state.alike_elsewhere:
        return state
    return replace(state, fault=of_the_program(fault, ranks))
