"""What the machine makes of the ranks' news: starts, ends, hangs, checkpoints. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..exit_codes import EXIT_DONE, EXIT_RESTART
from .actions import Outcome, SetCheckpointAside, StartAnyway, StopRanks
from .causes import FaultCause, StopCause
from .classify import (
    Fault,
    fault_of_errno,
    fault_of_exit,
    fault_of_loss,
    fault_of_not_finite,
    fault_of_save,
    fault_of_script,
    root,
    says_the_same,
)
from .degrade import go_on
from .events import (
    CheckpointCommitted,
    CheckpointRefused,
    GpuMemoryStayed,
    LossNotFinite,
    RankExited,
    RankLost,
    RanksHung,
    RanksStarted,
    RanksStraggled,
    SaveFailed,
    StartFailed,
)
from .policy import Policy
from .rules import Budget
from .state import Phase, State, Unsaved
from .storage_events import CheckpointDrilled
from .told_to_stop import saved_and_ended
from .ways_back import Decision, finish

_LOST_NAMED: Final = 4  # nodes in one sentence
RANKS_ALIVE: Final = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


def ranks_started(state: State, event: RanksStarted) -> Decision:
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    # What the last attempt had saved completely may have become valid only now.
    restored = -1 if event.restored_step is None else event.restored_step
    return replace(_progressed(state, restored), phase=Phase.RUNNING), ()


def start_failed(state: State, event: StartFailed) -> Decision:
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    fault = Fault(
        cause=FaultCause.START_FAILED,
        rank=None,
        node=event.missing[0] if len(event.missing) == 1 else None,
        evidence=event.detail,
    )
    if event.errno is not None:
        fault = fault_of_errno(event.errno, event.detail)
    # When none came it is the step that failed: each node is asked whether it runs a command.
    suspects = () if event.errno is not None else event.missing or state.active
    failed = replace(state, phase=Phase.STOPPING, fault=fault, suspects=suspects)
    return failed, (StopRanks(reason=f"the start did not succeed: {event.detail}"),)


def rank_exited(state: State, event: RankExited, policy: Policy) -> Decision:
    if state.phase not in RANKS_ALIVE or event.generation != state.generation:
        return state, ()
    if event.code == 0 and not event.stopped:
        if event.unfinished and state.stop is not None:
            # It caught the SystemExit that ended its steps: the work is not done.
            return _left_early(state, event), ()
        if _has_only_saved(state, policy):
            return state, ()
        return _rank_done(state, event, policy)
    if _has_saved_to_start_again(state, event):
        return saved_and_ended(state, event, policy)
    if policy.script:
        return _script_ended(state, event, policy)
    if event.stopped or (state.stop is not None and event.code == EXIT_RESTART):
        return _compared(_left_early(state, event), event), ()
    fault = fault_of_exit(event, policy.rules)
    if event.code == EXIT_RESTART:
        fault = replace(fault, cause=FaultCause.SELF_STOPPED)
    known, before = root(state.fault, fault), state.fault
    if known is not before:
        state = replace(state, fault=known, alike=0, alike_elsewhere=False)
    failed = _compared(_witnessed(state, fault), event)
    is_awaited = before is not None and before.cascade and not known.cascade
    if state.phase is Phase.STOPPING and state.stop is None and not is_awaited:
        return failed, ()
    order = StopRanks(reason=fault.evidence, patience_s=_patience_s(state, fault, policy))
    return replace(failed, phase=Phase.STOPPING), (order,)


def _left_early(state: State, event: RankExited) -> State:
    return replace(state, left_early=state.left_early | {event.rank})


def _has_only_saved(state: State, policy: Policy) -> bool:
    """Whether code 0 may mean a save, by a program that hears of the end from others than us."""
    stop = state.stop
    return stop is not None and (policy.script or (policy.saves_itself and stop.ends_allocation))


def _has_saved_to_start_again(state: State, event: RankExited) -> bool:
    by_itself = not event.stopped and state.phase is not Phase.STOPPING
    return by_itself and state.told_to_save and event.code == EXIT_RESTART


def _compared(state: State, event: RankExited) -> State:
    """Counts the ranks that have failed alike, on the fault's node and elsewhere."""
    fault = state.fault
    if fault is None or not says_the_same(fault, event):
        return state
    elsewhere = state.alike_elsewhere or event.node != fault.node
    return replace(state, alike=state.alike + 1, alike_elsewhere=elsewhere)


def _patience_s(state: State, fault: Fault, policy: Policy) -> float:
    """Before anything is saved a restart can wait for what the other ranks have to say; and after
    the report of a rank that has only noticed the end of another, which may take a while to die."""
    if fault.cascade and state.phase is not Phase.STOPPING:
        return policy.others_say_s
    early = state.committed_step < 0 and len(state.active) > 1
    unnamed = fault.cause in (FaultCause.EXITED, FaultCause.USER_ERROR)
    return policy.others_say_s if early and unnamed and state.stop is None else 0.0


def _script_ended(state: State, event: RankExited, policy: Policy) -> Decision:
    """It failed, and any node may be why; or the job has to stop, and the script has stopped."""
    if state.stop is not None or event.stopped:
        return state, ()
    fault = fault_of_script(event, policy.rules)
    failed = replace(state, fault=fault, suspects=state.nodes, phase=Phase.STOPPING)
    return failed, (StopRanks(reason=fault.evidence),)


def _rank_done(state: State, event: RankExited, policy: Policy) -> Decision:
    state = replace(state, done=state.done | {event.rank})
    if event.unfinished:
        state = _left_early(state, event)
    if len(state.done) < policy.ranks_on(len(state.active)):
        return state, ()
    if state.unsaved is not None:  # done, and yet not all of it would be there to go on from
        fault = state.unsaved.fault
        reason = f"all ranks have ended, and their last state is not saved: {fault.evidence}"
        state = replace(state, phase=Phase.STOPPING, fault=fault)
        return state, (StopRanks(reason=reason),)
    reason = "all ranks ended with code 0"
    if state.left_early:
        reason += f", ranks {sorted(state.left_early)} before the last of their steps"
    return finish(state, Outcome.COMPLETED, EXIT_DONE, "done", reason)


def rank_lost(state: State, event: RankLost) -> Decision:
    if state.phase not in RANKS_ALIVE or event.generation != state.generation:
        return state, ()
    fault = fault_of_loss(event)
    lost = replace(
        state,
        fault=_with_others(root(state.fault, fault), state, event.node),
        suspects=tuple(dict.fromkeys((*state.suspects, event.node))),
    )
    if state.phase is Phase.STOPPING and state.stop is None:
        return lost, ()
    return replace(lost, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


def _with_others(fault: Fault, state: State, node: str) -> Fault:
    """Names a few of the nodes that are lost at once: the first that is noticed need not be the one
    that has failed."""
    is_next = fault is state.fault and fault.cause is FaultCause.NODE_SUSPECT
    if not is_next or node in state.suspects or len(state.suspects) >= _LOST_NAMED:
        return fault
    return replace(fault, evidence=f"{fault.evidence}; {node} likewise")


def ranks_hung(state: State, event: RanksHung) -> Decision:
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


def _witnessed(state: State, fault: Fault) -> State:
    """Remembers on which nodes the file system has failed."""
    if fault.cause is not FaultCause.FILESYSTEM or fault.node is None:
        return state
    return replace(state, witnesses=state.witnesses | {fault.node})


def save_failed(state: State, event: SaveFailed) -> Decision:
    """The ranks go on, and save again when it is time: what they do is worth more than a stop."""
    if state.phase not in RANKS_ALIVE or event.generation not in (None, state.generation):
        return state, ()
    # What a later save has made needless fails when it is tried again: its files are pruned.
    if event.step is not None and event.step > state.saved_step:
        state = _unsaved(state, event.step, fault_of_save(event))
    if state.phase is not Phase.STOPPING or state.stop is None or event.step is not None:
        return state, ()  # a rank whose save fails tries again, and ends by itself
    all_are_there = state.left_early <= state.done
    if state.stop.cause is StopCause.DEGRADED and state.fault is None and all_are_there:
        return go_on(state)
    return state, (StopRanks(reason=f"no emergency save: {event.reason}"),)


def checkpoint_committed(state: State, event: CheckpointCommitted) -> Decision:
    state = _progressed(state, event.step)
    if event.generation == state.generation:
        state = replace(state, saved_step=max(state.saved_step, event.step))
    if state.unsaved is not None and event.step < state.unsaved.step:
        return state, ()  # an older one was tried again: the last state is still not saved
    return replace(state, unsaved=None), ()


def _unsaved(state: State, step_: int, fault: Fault) -> State:
    state = _witnessed(state, fault)
    if state.unsaved is not None and step_ < state.unsaved.step:
        return state
    return replace(state, unsaved=Unsaved(step=step_, fault=fault))


def ranks_straggled(state: State, event: RanksStraggled) -> Decision:
    """To stop for it would cost more: the next start takes another node, when one is there."""
    known = state.phase is Phase.RUNNING and event.generation == state.generation
    if not known or not event.by_node or len(state.active) == 1:
        return state, ()
    return state.chosen_last(event.node, FaultCause.STRAGGLER, event.detail), ()


def gpu_memory_stayed(state: State, event: GpuMemoryStayed, policy: Policy) -> Decision:
    """Ranks may find too little memory there: they start elsewhere, if there is another node."""
    if state.phase is not Phase.STARTING or event.generation != state.generation:
        return state, ()
    cause = FaultCause.GPU_MEMORY_HELD
    for node, evidence in event.held.items():
        state = state.chosen_last(node, cause, evidence)
    told = "; ".join(f"{cause.value} on {node}: {what}" for node, what in event.held.items())
    last = {one.node for one in state.last_choice}
    if len(last.intersection(state.healthy[: policy.nodes])) >= len(
        last.intersection(state.active)
    ):
        return state, (StartAnyway(reason=f"no better node is here; {told}"),)
    fault = Fault(cause=cause, rank=None, node=None, evidence=told, budget=Budget.NODE)
    return replace(state, phase=Phase.STOPPING, fault=fault), (StopRanks(reason=fault.evidence),)


def loss_not_finite(state: State, event: LossNotFinite, policy: Policy) -> Decision:
    if state.phase is not Phase.RUNNING or event.generation != state.generation:
        return state, ()
    if policy.not_finite == "warn":
        return state, ()
    fault = fault_of_not_finite(event, again=policy.not_finite == "rollback")
    stopped = replace(state, phase=Phase.STOPPING, fault=fault, spoilt=event.since)
    return stopped, (StopRanks(reason=fault.evidence),)


def _progressed(state: State, step_: int) -> State:
    if step_ <= state.committed_step:
        return state
    moved = replace(state, committed_step=step_)
    return replace(moved, failures=0, idle_restarts=0, node_failures=0, outage_s=0.0)


def checkpoint_refused(state: State, event: CheckpointRefused) -> Decision:
    if state.phase not in RANKS_ALIVE or event.generation != state.generation:
        return state, ()
    if event.lacking:
        return _lacks_library(state, event)
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


def checkpoint_drilled(state: State, event: CheckpointDrilled) -> Decision:
    """Nobody has restored from it, so nobody has to stop for it."""
    if not event.damage or state.phase in (Phase.NEW, Phase.ENDED):
        return state, ()
    return state, (SetCheckpointAside(step=event.step, reason=event.damage),)


def _lacks_library(state: State, event: CheckpointRefused) -> Decision:
    """All nodes have the same, as a rule, and none gets it by a restart."""
    fault = Fault(
        cause=FaultCause.USER_ERROR,
        rank=None,
        node=None,
        evidence=f"{event.node} cannot read checkpoint {event.step}: {event.reason}",
        budget=Budget.STOP,
    )
    if state.phase is Phase.STOPPING:
        return replace(state, fault=fault), ()
    return replace(state, fault=fault, phase=Phase.STOPPING), (StopRanks(reason=fault.evidence),)


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
