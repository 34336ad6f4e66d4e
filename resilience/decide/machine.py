"""The decisions: one event in, the next state and the actions out.

Pure: no clock (``now`` is passed in, Unix seconds), no IO. How a run comes back once its ranks have
stopped is in ``ways_back``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from .actions import (
    Action,
    Outcome,
    ProbeNodes,
    RunPreflight,
    SaveAndStop,
    SetCheckpointAside,
    StopRanks,
)
from .blame import judge, untested
from .budgets import charge, charge_attempt
from .causes import FaultCause, StopCause
from .classify import Fault, fault_of_exit, fault_of_loss, root
from .degrade import go_on, leave_degraded, node_degraded
from .events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    NodeDegraded,
    NodesExamined,
    NodesProbed,
    NodesRejected,
    NodesWatched,
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
from .moving import allocation_arranged, allocation_refused
from .past import remember
from .policy import Policy
from .rules import Budget
from .state import Phase, State, Stop
from .ways_back import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_RESTART,
    EXIT_STOP,
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

_RANKS_ALIVE: Final = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
_UNDER_WAY: Final = (Phase.PREFLIGHT, *_RANKS_ALIVE, Phase.PROBING)


def step(state: State, event: Event, policy: Policy, now: float) -> Decision:
    """The next state and the orders that follow from ``event``; after the end there are none."""
    after, orders = _decide(state, event, policy, now)
    if after is state:  # the event came too late, or too early
        return state, orders
    told = state.stop.cause if state.stop is not None else None
    past = remember(state.past, event, now, failed=state.fault is not None, told=told)
    return replace(after, past=past), orders


def _decide(state: State, event: Event, policy: Policy, now: float) -> Decision:
    if state.phase is Phase.ENDED and not isinstance(event, AttemptStarted | CheckpointCommitted):
        return state, ()
    match event:
        case AttemptStarted():
            return _attempt_started(state, event, policy, now)
        case PreflightFinished():
            return _preflight_finished(state, event, policy, now)
        case RanksStarted():
            return _ranks_started(state, event)
        case StartFailed():
            return _start_failed(state, event)
        case RankExited():
            return _rank_exited(state, event, policy)
        case RankLost():
            return _rank_lost(state, event)
        case RanksHung():
            return _ranks_hung(state, event)
        case RanksStopped():
            return _ranks_stopped(state, event, policy, now)
        case NodesProbed():
            return _nodes_probed(state, event, policy, now)
        case NodesRejected():
            return exclude(state, event.bad, USER)
        case NodeDegraded():
            return node_degraded(state, event, policy, now)
        case NodesWatched() | NodesExamined():
            return state, ()  # only for people
        case StopRequested():
            return _stop_requested(state, event, policy, now)
        case SaveFailed():
            return _save_failed(state, event)
        case RanksLingered():
            return _ranks_lingered(state, event)
        case CheckpointCommitted():
            return _progressed(state, event.step), ()
        case CheckpointRefused():
            return _checkpoint_refused(state, event)
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
            return finish(state, Outcome.INTERRUPTED, EXIT_STOP, "superseded", event.reason)
        case _:
            assert_never(event)


# An attempt begins


def _attempt_started(state: State, event: AttemptStarted, policy: Policy, now: float) -> Decision:
    if state.phase in _UNDER_WAY:  # the last supervisor ended without a word
        same = state.attempt == event.attempt
        state = charge(state, Budget.FREE) if same else charge_attempt(state)
    begun = State(
        excluded=state.excluded,
        committed_step=max(state.committed_step, event.committed_step),
        failures=state.failures,
        idle_restarts=state.idle_restarts,
        node_failures=state.node_failures,
        marks=state.marks,
        first_started=now if state.first_started is None else state.first_started,
        attempt=event.attempt,
        batch_node=event.batch_node,
        nodes=event.nodes,
        # A later life of the supervisor in the same allocation: its generations are new ones.
        generation=state.generation if state.attempt == event.attempt else 0,
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
    if policy.preflight:
        order = RunPreflight(
            nodes=begun.healthy, reason="no rank starts on a node nobody looked at"
        )
        return replace(begun, phase=Phase.PREFLIGHT), (*actions, order)
    begun, more = start(begun, policy, now, "the allocation is there")
    return begun, (*actions, *more)


def _preflight_finished(
    state: State, event: PreflightFinished, policy: Policy, now: float
) -> Decision:
    if state.phase is not Phase.PREFLIGHT:
        return state, ()
    if event.job_fault is not None:
        reason = f"preflight: {event.job_fault}"
        return finish(state, Outcome.FAILED, EXIT_FAILED, "preflight", reason)
    state, excluded = exclude(state, event.bad, "preflight")
    if excluded:
        state = charge(state, Budget.NODE)
    state, more = start(state, policy, now, "preflight is done")
    return state, (*excluded, *more)


# While ranks run


def _ranks_started(state: State, event: RanksStarted) -> Decision:
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    # What the last attempt had saved completely may have become valid only now.
    restored = -1 if event.restored_step is None else event.restored_step
    return replace(_progressed(state, restored), phase=Phase.RUNNING), ()


def _start_failed(state: State, event: StartFailed) -> Decision:
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    fault = Fault(
        cause=FaultCause.START_FAILED,
        rank=None,
        node=event.missing[0] if len(event.missing) == 1 else None,
        evidence=event.detail,
    )
    failed = replace(state, phase=Phase.STOPPING, fault=fault, suspects=event.missing)
    return failed, (StopRanks(reason=f"the start did not succeed: {event.detail}"),)


def _rank_exited(state: State, event: RankExited, policy: Policy) -> Decision:
    if state.phase not in _RANKS_ALIVE or event.generation != state.generation:
        return state, ()
    if event.code == 0 and not event.stopped and not (policy.script and state.stop is not None):
        return _rank_done(state, event.rank, policy)
    if policy.script:
        return _script_ended(state, event, policy)
    if event.stopped or (state.stop is not None and event.code == EXIT_RESTART):
        return state, ()
    fault = fault_of_exit(event, policy.rules)
    if event.code == EXIT_RESTART:
        fault = replace(fault, cause=FaultCause.SELF_STOPPED)
    failed = replace(state, fault=root(state.fault, fault))
    if state.phase is Phase.STOPPING and state.stop is None:
        return failed, ()
    return replace(failed, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


def _script_ended(state: State, event: RankExited, policy: Policy) -> Decision:
    """It failed, and any node may be why; or the job has to stop, and the script has stopped."""
    if state.stop is not None or event.stopped:
        return state, ()
    fault = fault_of_exit(event, policy.rules)
    failed = replace(state, fault=fault, suspects=state.nodes, phase=Phase.STOPPING)
    return failed, (StopRanks(reason=fault.evidence),)


def _rank_done(state: State, rank: int, policy: Policy) -> Decision:
    state = replace(state, done=state.done | {rank})
    if len(state.done) < policy.world_size:
        return state, ()
    return finish(state, Outcome.COMPLETED, EXIT_DONE, "done", "all ranks ended with code 0")


def _rank_lost(state: State, event: RankLost) -> Decision:
    if state.phase not in _RANKS_ALIVE or event.generation != state.generation:
        return state, ()
    fault = fault_of_loss(event)
    lost = replace(
        state,
        fault=root(state.fault, fault),
        suspects=tuple(dict.fromkeys((*state.suspects, event.node))),
    )
    if state.phase is Phase.STOPPING and state.stop is None:
        return lost, ()
    return replace(lost, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


def _ranks_hung(state: State, event: RanksHung) -> Decision:
    if state.phase is not Phase.RUNNING or event.generation != state.generation:
        return state, ()
    who = f"ranks {list(event.ranks)} on {', '.join(event.nodes)}"
    fault = Fault(
        cause=FaultCause.HANG,
        rank=event.ranks[0] if len(event.ranks) == 1 else None,
        node=event.nodes[0] if len(event.nodes) == 1 else None,
        evidence=f"{event.detail}; behind: {who}",
    )
    # One node that is behind all others may be sick; a hang everywhere says nothing of nodes.
    suspects = event.nodes if len(event.nodes) == 1 < len(state.active) else ()
    hung = replace(state, phase=Phase.STOPPING, fault=fault, suspects=suspects)
    return hung, (StopRanks(reason=fault.evidence, stacks=True),)


def _progressed(state: State, step_: int) -> State:
    if step_ <= state.committed_step:
        return state
    moved = replace(state, committed_step=step_)
    return replace(moved, failures=0, idle_restarts=0, node_failures=0)


def _checkpoint_refused(state: State, event: CheckpointRefused) -> Decision:
    if state.phase not in _RANKS_ALIVE:
        return state, ()
    if event.sound:
        return _cannot_read(state, event)
    aside = SetCheckpointAside(step=event.step, reason=event.reason)
    fault = Fault(
        cause=FaultCause.CHECKPOINT_DAMAGED,
        rank=None,
        node=None,
        evidence=f"checkpoint {event.step}: {event.reason}",
        budget=Budget.FREE,
    )
    if state.phase is Phase.STOPPING:
        return replace(state, fault=fault), (aside,)
    reason = "all ranks have to go back to an older checkpoint together"
    return replace(state, fault=fault, phase=Phase.STOPPING), (aside, StopRanks(reason=reason))


def _cannot_read(state: State, event: CheckpointRefused) -> Decision:
    """The checkpoint is good, so it stays; the node that cannot read it is asked."""
    fault = Fault(
        cause=FaultCause.FILESYSTEM,
        rank=None,
        node=event.node,
        evidence=f"{event.node} cannot read checkpoint {event.step}, others can: {event.reason}",
    )
    suspects = tuple(dict.fromkeys((*state.suspects, event.node)))
    state = replace(state, fault=root(state.fault, fault), suspects=suspects)
    if state.phase is Phase.STOPPING:
        return state, ()
    return replace(state, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


# Told to stop


def _stop_requested(state: State, event: StopRequested, policy: Policy, now: float) -> Decision:
    if state.phase in (Phase.NEW, Phase.ENDED):
        return state, ()
    earlier = state.stop
    stop = Stop(cause=event.cause, kill_at=event.kill_at, evidence=event.evidence)
    if earlier is not None and not stop.outranks(earlier):
        return state, ()
    if state.phase is Phase.MOVING:
        # Our own request for a new allocation may bring signals; only a cancel changes anything.
        return (replace(state, stop=stop) if stop.cause is StopCause.CANCELLED else state), ()
    if not stop.ends_allocation and state.phase is not Phase.RUNNING:
        return state, ()  # the job goes on, and there is nothing to save
    state = replace(state, stop=stop)
    if state.phase is Phase.RUNNING:
        order = SaveAndStop(cause=stop.cause, kill_at=stop.kill_at, reason=stop.evidence)
        return replace(state, phase=Phase.STOPPING), (order,)
    if state.phase is Phase.STARTING:
        reason = f"nothing to save yet; {stop.evidence}"
        return replace(state, phase=Phase.STOPPING), (StopRanks(reason=reason),)
    if state.phase is Phase.STOPPING:
        return state, ()
    return leave(state, policy, now)


def _save_failed(state: State, event: SaveFailed) -> Decision:
    if state.phase is not Phase.STOPPING or state.stop is None:
        return state, ()
    if state.stop.cause is StopCause.DEGRADED and event.step is None:
        return go_on(state)
    return state, (StopRanks(reason=f"no emergency save: {event.reason}"),)


def _ranks_lingered(state: State, event: RanksLingered) -> Decision:
    if state.phase is not Phase.STOPPING or event.generation != state.generation:
        return state, ()
    return state, (StopRanks(reason=f"ranks {list(event.ranks)} did not end: {event.detail}"),)


# After all ranks have stopped


def _ranks_stopped(state: State, event: RanksStopped, policy: Policy, now: float) -> Decision:
    if state.phase is not Phase.STOPPING or event.generation != state.generation:
        return state, ()
    state, guilty = judge(state, policy)
    state, excluded = exclude(state, guilty, cause_of_fault(state))
    state, left = leave_degraded(state, policy, now)
    if state.stop is not None and state.stop.ends_allocation:
        state, more = leave(state, policy, now)
    elif state.suspects:
        order = ProbeNodes(nodes=state.suspects, reason="a node is blamed on evidence only")
        state, more = replace(state, phase=Phase.PROBING), (order,)
    elif node := untested(state):
        reason = f"hardware may have failed, {node} is tested before it is used again"
        order = ProbeNodes(nodes=(node,), reason=reason, work=True)
        state, more = replace(state, phase=Phase.PROBING), (order,)
    else:
        state, more = come_back(state, policy, now)
    return state, (*excluded, *left, *more)


def _nodes_probed(state: State, event: NodesProbed, policy: Policy, now: float) -> Decision:
    if state.phase is not Phase.PROBING:
        return state, ()
    state, excluded = exclude(state, event.silent, FaultCause.NODE_DOWN.value)
    state, failed = exclude(state, event.failed, cause_of_fault(state))
    state, more = come_back(state, policy, now)
    return state, (*excluded, *failed, *more)
