"""What the machine does when somebody wants the ranks to stop. Pure."""

from __future__ import annotations

from dataclasses import replace

from .actions import SaveAndStop, StopRanks
from .causes import StopCause
from .events import RankExited, RanksLingered, StopRequested, ToldToSave
from .moving import ask_early
from .policy import Policy
from .probing import not_asked
from .state import Phase, State, Stop
from .ways_back import Decision, leave


def stop_requested(state: State, event: StopRequested, policy: Policy, now: float) -> Decision:
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
    if stop.ends_allocation:
        state = not_asked(state)
    if state.phase is Phase.RUNNING:
        order = SaveAndStop(cause=stop.cause, kill_at=stop.kill_at, reason=stop.evidence)
        state, early = ask_early(state, policy, now)
        return replace(state, phase=Phase.STOPPING), (order, *early)
    if state.phase is Phase.STARTING:
        reason = f"nothing to save yet; {stop.evidence}"
        return replace(state, phase=Phase.STOPPING), (StopRanks(reason=reason),)
    if state.phase is Phase.STOPPING:
        return ask_early(state, policy, now)
    return leave(state, policy, now)


def told_to_save(state: State, event: ToldToSave) -> Decision:
    if event.generation != state.generation:
        return state, ()
    return replace(state, told_to_save=True), ()


def saved_and_ended(state: State, event: RankExited, policy: Policy) -> Decision:
    """A program that was told to save has done so, and ended to be started again."""
    evidence = f"rank {event.rank} on {event.node} was told to save, and ended with {event.code}"
    stop = Stop(cause=StopCause.SIGNALLED, kill_at=None, evidence=evidence)
    order = StopRanks(reason=evidence, patience_s=policy.others_save_s)
    return replace(state, phase=Phase.STOPPING, stop=stop), (order,)


def ranks_lingered(state: State, event: RanksLingered) -> Decision:
    if state.phase is not Phase.STOPPING or event.generation != state.generation:
        return state, ()
    return state, (StopRanks(reason=f"ranks {list(event.ranks)} did not end: {event.detail}"),)
