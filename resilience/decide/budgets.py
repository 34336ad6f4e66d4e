"""How much may go wrong before a run ends, by cause. Pure. A newer checkpoint resets all counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relight.counted import counted

from .policy import Policy
from .rules import Budget
from .state import State

_OTHERWISE: Final = (Budget.NODE, Budget.FREE, Budget.WAITED)  # these end in other ways


def budget_of(state: State) -> Budget:
    """What the failure at hand is charged to; that of a guilty node is not the program's."""
    blamed = {*state.suspects, state.fault.node if state.fault is not None else None}
    if blamed & set(state.excluded_nodes):
        return Budget.NODE
    return state.fault.budget if state.fault is not None else Budget.COUNTED


def charge(state: State, budget: Budget) -> State:
    """The counts after one more failure."""
    if budget is Budget.WAITED:
        return state
    if budget is Budget.NODE:
        return replace(state, node_failures=state.node_failures + 1)
    return replace(
        state,
        failures=state.failures + (0 if budget is Budget.FREE else 1),
        idle_restarts=state.idle_restarts + 1,
    )


def charge_attempt(state: State) -> State:
    """The counts after an attempt that others have ended: free while progress is made.

    A program that saves nothing through us makes no progress that we could see: it is given many.
    """
    if state.committed_step < 0:
        return replace(state, blind_attempts=state.blind_attempts + 1)
    return replace(state, idle_restarts=state.idle_restarts + 1)


def forgive(state: State) -> State:
    """The counts after a person has looked into what failed, and wants the run to go on."""
    return replace(
        state, failures=0, idle_restarts=0, node_failures=0, blind_attempts=0, first_started=None
    )


def limit(state: State, budget: Budget, policy: Policy) -> int:
    """How many failures in a row this one may be the last of."""
    match budget:
        case Budget.STOP:
            return 0
        case Budget.START_UP_ALIKE if state.committed_step < 0:
            return 0
        case Budget.ONCE | Budget.START_UP_ALIKE:
            return min(1, policy.failures)
        case Budget.START_UP if state.committed_step < 0:
            return min(1, policy.failures)
        case _:
            return policy.failures


def overdrawn(state: State, budget: Budget, policy: Policy) -> str | None:
    """Why the program may not be tried again, after :func:`charge`; None when it may."""
    if budget in _OTHERWISE or state.failures <= limit(state, budget, policy):
        return None
    if budget is Budget.STOP:
        return "a restart would be in vain"
    return f"{counted(state.failures, 'failure')} without a newer checkpoint"
