"""The decisions: one event in, the next state and the actions out.

Pure: no clock (``now`` is passed in, Unix seconds), no IO. The ways back are tried in the order of
their cost: restart in place, restart on the healthy nodes of the allocation, new allocation, stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from relight.errors import RelightError

from .actions import (
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
from .causes import FaultCause, StopCause
from .classify import Fault, fault_of_exit, fault_of_loss, root
from .events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    NodesProbed,
    PreflightFinished,
    RankExited,
    RankLost,
    RanksStarted,
    RanksStopped,
    RestoreImpossible,
    SaveFailed,
    StartFailed,
    StopRequested,
)
from .policy import Policy
from .state import Exclusion, Phase, State, Stop

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_RESTART: Final = 75
EXIT_STOP: Final = 93

Decision = tuple[State, tuple[Action, ...]]

_END_WITHOUT_RESTART: Final = {
    StopCause.CANCELLED: Outcome.CANCELLED,
    StopCause.UNKNOWN: Outcome.INTERRUPTED,
}
_RANKS_ALIVE: Final = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


class UnexpectedEvent(RelightError):
    """An event that cannot follow from the state: a fault of relight itself."""


def step(state: State, event: Event, policy: Policy, now: float) -> Decision:
    """The next state and the orders that follow from ``event``."""
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
        case RanksStopped():
            return _ranks_stopped(state, policy, now)
        case NodesProbed():
            return _nodes_probed(state, event, policy, now)
        case StopRequested():
            return _stop_requested(state, event, policy, now)
        case SaveFailed():
            return _save_failed(state, event)
        case CheckpointCommitted():
            return _checkpoint_committed(state, event)
        case CheckpointRefused():
            return _checkpoint_refused(state, event)
        case RestoreImpossible():
            reason = f"nothing to go on from: {event.reason}"
            return _finish(
                state, Outcome.STOPPED, EXIT_STOP, FaultCause.CHECKPOINT_DAMAGED.value, reason
            )
        case AllocationArranged():
            return _allocation_arranged(state, event)
        case AllocationRefused():
            reason = f"no new allocation: {event.reason}"
            return _finish(state, Outcome.STOPPED, EXIT_STOP, _cause_text(state), reason)


# An attempt begins


def _attempt_started(state: State, event: AttemptStarted, policy: Policy, now: float) -> Decision:
    vanished = state.phase is Phase.RUNNING  # its supervisor ended without a word
    begun = State(
        excluded=state.excluded,
        committed_step=max(state.committed_step, event.committed_step),
        failures=state.failures,
        idle_restarts=state.idle_restarts + (1 if vanished else 0),
        first_started=now if state.first_started is None else state.first_started,
        attempt=event.attempt,
        batch_node=event.batch_node,
        nodes=event.nodes,
    )
    actions: tuple[Action, ...] = ()
    if event.lost_batch_node is not None:
        evidence = "the supervisor of the previous attempt vanished and the scheduler says down"
        begun, actions = _exclude(
            begun, {event.lost_batch_node: evidence}, FaultCause.NODE_DOWN.value
        )
    if policy.preflight:
        order = RunPreflight(
            nodes=begun.healthy, reason="no rank starts on a node nobody looked at"
        )
        return replace(begun, phase=Phase.PREFLIGHT), (*actions, order)
    begun, more = _start(begun, policy, now, "the allocation is there")
    return begun, (*actions, *more)


def _preflight_finished(
    state: State, event: PreflightFinished, policy: Policy, now: float
) -> Decision:
    if state.phase is not Phase.PREFLIGHT:
        return state, ()
    if event.job_fault is not None:
        reason = f"preflight: {event.job_fault}"
        return _finish(state, Outcome.FAILED, EXIT_FAILED, "preflight", reason)
    state, excluded = _exclude(state, event.bad, "preflight")
    state, more = _start(state, policy, now, "preflight is done")
    return state, (*excluded, *more)


def _start(state: State, policy: Policy, now: float, reason: str, delay_s: float = 0.0) -> Decision:
    """Start ranks on healthy nodes of the allocation; ask for others when they do not suffice."""
    if len(state.healthy) < policy.nodes:
        lacking = f"{len(state.healthy)} healthy nodes of {policy.nodes} needed"
        return _move(state, policy, now, f"{lacking}; {_reasons(state)}")
    active = state.healthy[: policy.nodes]
    generation = state.generation + 1
    started = replace(
        state,
        phase=Phase.STARTING,
        generation=generation,
        active=active,
        done=frozenset(),
        fault=None,
        suspects=(),
    )
    order = StartRanks(generation=generation, nodes=active, delay_s=delay_s, reason=reason)
    return started, (order,)


# While ranks run


def _ranks_started(state: State, event: RanksStarted) -> Decision:
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    return replace(state, phase=Phase.RUNNING), ()


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
    if event.code == 0 and not event.stopped:
        return _rank_done(state, event.rank, policy)
    if event.stopped or (state.stop is not None and event.code == EXIT_RESTART):
        return state, ()
    fault = fault_of_exit(event)
    if event.code == EXIT_RESTART:
        fault = replace(fault, cause=FaultCause.SELF_STOPPED)
    failed = replace(state, fault=root(state.fault, fault))
    if state.phase is Phase.STOPPING and state.stop is None:
        return failed, ()
    return replace(failed, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


def _rank_done(state: State, rank: int, policy: Policy) -> Decision:
    state = replace(state, done=state.done | {rank})
    if len(state.done) < policy.world_size:
        return state, ()
    return _finish(state, Outcome.COMPLETED, EXIT_DONE, "done", "all ranks ended with code 0")


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


def _checkpoint_committed(state: State, event: CheckpointCommitted) -> Decision:
    if event.step <= state.committed_step:
        return state, ()
    return replace(state, committed_step=event.step, failures=0, idle_restarts=0), ()


def _checkpoint_refused(state: State, event: CheckpointRefused) -> Decision:
    if state.phase not in _RANKS_ALIVE:
        return state, ()
    aside = SetCheckpointAside(step=event.step, reason=event.reason)
    fault = Fault(
        cause=FaultCause.CHECKPOINT_DAMAGED,
        rank=None,
        node=None,
        evidence=f"checkpoint {event.step}: {event.reason}",
    )
    if state.phase is Phase.STOPPING:
        return replace(state, fault=fault), (aside,)
    reason = "all ranks have to go back to an older checkpoint together"
    return replace(state, fault=fault, phase=Phase.STOPPING), (aside, StopRanks(reason=reason))


# Told to stop


def _stop_requested(state: State, event: StopRequested, policy: Policy, now: float) -> Decision:
    if state.phase in (Phase.NEW, Phase.ENDED):
        return state, ()
    earlier = state.stop
    stop = Stop(cause=event.cause, kill_at=event.kill_at, evidence=event.evidence)
    if earlier is not None and not _outranks(stop, earlier):
        return state, ()
    state = replace(state, stop=stop)
    if state.phase is Phase.MOVING:
        return state, ()
    if state.phase is Phase.RUNNING:
        order = SaveAndStop(cause=stop.cause, kill_at=stop.kill_at, reason=stop.evidence)
        return replace(state, phase=Phase.STOPPING), (order,)
    if state.phase is Phase.STARTING:
        reason = f"nothing to save yet; {stop.evidence}"
        return replace(state, phase=Phase.STOPPING), (StopRanks(reason=reason),)
    if state.phase is Phase.STOPPING:
        return state, ()
    return _leave(state, policy, now)


def _outranks(new: Stop, old: Stop) -> bool:
    """A user's cancel beats all; knowing beats not knowing; the end of the job beats a signal."""
    order = (
        StopCause.SIGNALLED,
        StopCause.UNKNOWN,
        StopCause.TIME_LIMIT,
        StopCause.PREEMPTED,
        StopCause.REQUEUED,
        StopCause.CANCELLED,
    )
    return order.index(new.cause) > order.index(old.cause)


def _save_failed(state: State, event: SaveFailed) -> Decision:
    if state.phase is not Phase.STOPPING or state.stop is None:
        return state, ()
    return state, (StopRanks(reason=f"no emergency save: {event.reason}"),)


# After all ranks have stopped


def _ranks_stopped(state: State, policy: Policy, now: float) -> Decision:
    if state.phase is not Phase.STOPPING:
        return state, ()
    if state.stop is not None and state.stop.cause is not StopCause.SIGNALLED:
        return _leave(state, policy, now)
    if state.suspects:
        order = ProbeNodes(nodes=state.suspects, reason="a node is blamed on evidence only")
        return replace(state, phase=Phase.PROBING), (order,)
    return _come_back(state, policy, now)


def _nodes_probed(state: State, event: NodesProbed, policy: Policy, now: float) -> Decision:
    if state.phase is not Phase.PROBING:
        return state, ()
    state, excluded = _exclude(state, event.silent, FaultCause.NODE_DOWN.value)
    state, more = _come_back(state, policy, now)
    return state, (*excluded, *more)


def _come_back(state: State, policy: Policy, now: float) -> Decision:
    """Restart inside the allocation if the budgets allow."""
    if state.stop is not None:  # a bare signal: the job itself goes on
        reason = f"saved on a signal; the allocation is still ours ({state.stop.evidence})"
        return _start(replace(state, stop=None), policy, now, reason)
    free = any(node in state.excluded_nodes for node in state.suspects)
    free = free or (state.fault is not None and state.fault.cause is FaultCause.CHECKPOINT_DAMAGED)
    state = replace(
        state,
        failures=state.failures + (0 if free else 1),
        idle_restarts=state.idle_restarts + 1,
    )
    if state.failures > policy.failures:
        reason = f"{state.failures} failures without a newer checkpoint; last: {_reasons(state)}"
        return _finish(state, Outcome.FAILED, EXIT_FAILED, _cause_text(state), reason)
    stopped = _out_of_budget(state, policy, now)
    if stopped is not None:
        return _finish(state, Outcome.STOPPED, EXIT_STOP, _cause_text(state), stopped)
    delay_s = 0.0 if free else policy.backoff_s(state.failures)
    return _start(state, policy, now, f"restart in the allocation: {_reasons(state)}", delay_s)


def _leave(state: State, policy: Policy, now: float) -> Decision:
    """The allocation ends: go on in another one, or not."""
    assert state.stop is not None
    outcome = _END_WITHOUT_RESTART.get(state.stop.cause)
    if outcome is Outcome.CANCELLED:
        return _finish(state, outcome, EXIT_STOP, state.stop.cause.value, state.stop.evidence)
    if outcome is Outcome.INTERRUPTED:
        reason = f"nobody said why, so nothing is restarted on our word ({state.stop.evidence})"
        return _finish(state, outcome, EXIT_RESTART, state.stop.cause.value, reason)
    return _move(state, policy, now, f"{state.stop.cause.value}: {state.stop.evidence}")


def _move(state: State, policy: Policy, now: float, reason: str) -> Decision:
    if policy.restart == "never":
        return _finish(
            state,
            Outcome.STOPPED,
            EXIT_STOP,
            _cause_text(state),
            f"restart.mode is never; {reason}",
        )
    stopped = _out_of_budget(state, policy, now)
    if stopped is not None:
        return _finish(state, Outcome.STOPPED, EXIT_STOP, _cause_text(state), stopped)
    order = RequestAllocation(exclude=state.excluded_nodes, reason=reason)
    return replace(state, phase=Phase.MOVING), (order,)


def _allocation_arranged(state: State, event: AllocationArranged) -> Decision:
    if state.stop is not None and state.stop.cause is StopCause.CANCELLED:
        reason = "the run was cancelled while a new allocation was arranged"
        order = Withdraw(mode=event.mode, job_id=event.job_id, reason=reason)
        state, actions = _finish(
            state, Outcome.CANCELLED, EXIT_STOP, state.stop.cause.value, state.stop.evidence
        )
        return state, (order, *actions)
    reason = f"goes on as job {event.job_id} ({event.mode})"
    return _finish(state, Outcome.RESTARTING, EXIT_RESTART, _cause_text(state), reason)


def _out_of_budget(state: State, policy: Policy, now: float) -> str | None:
    if state.idle_restarts > policy.no_progress:
        return f"{state.idle_restarts} restarts and no newer checkpoint; last: {_reasons(state)}"
    if policy.walltime_s is not None and state.first_started is not None:
        spent_s = now - state.first_started
        if spent_s > policy.walltime_s:
            return (
                f"the run has taken {spent_s:.0f} s of restart.walltime {policy.walltime_s:.0f} s"
            )
    return None


# Words


def _exclude(state: State, bad: Mapping[str, str], cause: str) -> Decision:
    known = set(state.excluded_nodes)
    new = {node: evidence for node, evidence in bad.items() if node not in known}
    exclusions = tuple(
        Exclusion(node=node, cause=cause, evidence=evidence) for node, evidence in new.items()
    )
    orders = tuple(
        ExcludeNode(node=node, cause=cause, reason=evidence) for node, evidence in new.items()
    )
    return replace(state, excluded=(*state.excluded, *exclusions)), orders


def _finish(
    state: State, outcome: Outcome, exit_code: int, cause: str, reason: str
) -> tuple[State, tuple[Action, ...]]:
    tail = state.fault.tail if state.fault is not None else ()
    order = Finish(outcome=outcome, exit_code=exit_code, cause=cause, reason=reason, tail=tail)
    return replace(state, phase=Phase.ENDED), (order,)


def _cause_text(state: State) -> str:
    if state.stop is not None and state.stop.cause is not StopCause.SIGNALLED:
        return state.stop.cause.value
    if state.fault is not None:
        return state.fault.cause.value
    return "preflight" if state.excluded else "unknown"


def _reasons(state: State) -> str:
    if state.fault is not None:
        return state.fault.evidence
    new = [f"{exclusion.node}: {exclusion.evidence}" for exclusion in state.excluded]
    return "; ".join(new) or "no evidence"
