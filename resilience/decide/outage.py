"""Waiting until the place of the checkpoints works: how long in all, and what it costs. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..exit_codes import EXIT_STOP
from .actions import AwaitStorage, Outcome, RunPreflight
from .budgets import charge
from .policy import Policy
from .rules import Budget
from .state import Phase, State
from .storage_events import StorageAnswered, StorageSilent
from .ways_back import Decision, come_back, finish, move, out_of_budget

# Who waits so long has seen that it was away: the start that follows is not the program's to pay.
# A file system that comes and goes (a failover) may fail several of them.
_AWAY_S: Final = 10.0


def await_storage(state: State, policy: Policy, reason: str) -> Decision:
    """No longer, in all waits of an attempt since the last checkpoint, than the policy says."""
    left_s = max(0.0, policy.outage_s - state.outage_s)
    return replace(state, phase=Phase.WAITING), (AwaitStorage(limit_s=left_s, reason=reason),)


def storage_answered(
    state: State, event: StorageAnswered, policy: Policy, now: float, cause: str
) -> Decision:
    """Starts again; ``cause`` is that of a run that does not, where nothing has failed yet."""
    if state.phase is not Phase.WAITING:
        return state, ()
    waited = event.waited_s >= _AWAY_S and state.outage_s < policy.outage_s
    state = replace(state, outage_s=state.outage_s + event.waited_s)
    if state.fault is not None:
        return come_back(state, policy, now, Budget.WAITED if waited else None)
    # The preflight met it, and that is not tried for ever either.
    state = charge(state, Budget.WAITED if waited else Budget.FREE)
    if spent := out_of_budget(state, policy, now):
        return finish(state, Outcome.STOPPED, EXIT_STOP, cause, spent)
    order = RunPreflight(nodes=state.healthy, reason="the file system answers again")
    return replace(state, phase=Phase.PREFLIGHT), (order,)


def storage_silent(state: State, event: StorageSilent, policy: Policy, now: float) -> Decision:
    """Nodes are not kept for ever; the next ones may wait in the queue until it is back."""
    if state.phase is not Phase.WAITING:
        return state, ()
    reason = f"no answer in {event.waited_s:.0f} s: {event.detail}"
    return move(charge(state, Budget.FREE), policy, now, reason)
