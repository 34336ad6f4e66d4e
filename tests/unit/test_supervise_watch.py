"""When nodes are looked at once more after the end of a run."""

from __future__ import annotations

import pytest

from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.state import State, Stop
from relight.resilience.supervise.watch import looks_back

PREEMPTED = State(stop=Stop(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x"))


@pytest.mark.parametrize(
    ("outcome", "state", "every_s", "elapsed_s", "looks"),
    [
        (Outcome.FAILED, State(), 300.0, 1.0, True),
        (Outcome.STOPPED, State(), 300.0, 1.0, True),
        (Outcome.COMPLETED, State(), 300.0, 299.0, False),
        (Outcome.COMPLETED, State(), 300.0, 300.0, True),
        (Outcome.FAILED, State(), 0.0, 1.0, False),
        (Outcome.STOPPED, PREEMPTED, 300.0, 999.0, False),
        (Outcome.CANCELLED, State(), 300.0, 999.0, False),
        (Outcome.RESTARTING, State(), 300.0, 999.0, False),
    ],
)
def test_looks_back(
    outcome: Outcome, state: State, every_s: float, elapsed_s: float, looks: bool
) -> None:
    order = Finish(outcome=outcome, exit_code=0, cause="x", reason="x")
    assert looks_back(order, state, every_s, elapsed_s) is looks
