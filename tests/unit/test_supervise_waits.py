"""What an attempt waits for, in a line, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relight.resilience.decide.state import Phase, State
from relight.resilience.supervise.waits import Wait, Waited, Waits, awaited

NODES = ("n1", "n2")
STATE = State(attempt="7.0", phase=Phase.STARTING, generation=1, nodes=NODES, suspects=("n2",))
RANKS = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
NOTHING = Waited(
    start=None,
    absent=(),
    places={},
    speaking=frozenset(),
    begun=frozenset(),
    world_size=4,
)


@pytest.mark.parametrize(
    ("phase", "waited", "what"),
    [
        (Phase.PREFLIGHT, NOTHING, "the preflight of 2 nodes"),
        (Phase.STARTING, replace(NOTHING, absent=("n2",)), "agents on n2"),
        (Phase.STARTING, NOTHING, "ranks to be started"),
        (
            Phase.STARTING,
            replace(NOTHING, start="the checkpoint directory", absent=NODES),
            "the checkpoint directory",
        ),
        (
            Phase.STARTING,
            replace(NOTHING, absent=tuple(f"n{number}" for number in range(9))),
            "agents on n0, n1, n2, n3 and 5 more",
        ),
        (Phase.RUNNING, replace(NOTHING, places=RANKS), None),
        (
            Phase.RUNNING,
            replace(NOTHING, places=RANKS, speaking={0}, begun={0, 1, 3}),
            "rank 2 (n2) of 4 to begin its steps",
        ),
        (
            Phase.RUNNING,
            replace(NOTHING, places=RANKS, speaking={0}, begun={0}),
            "ranks 1, 2, 3 (n1, n2) of 4 to begin their steps",
        ),
        (Phase.RUNNING, replace(NOTHING, places=RANKS, speaking={0}, begun=RANKS.keys()), None),
        (Phase.STOPPING, replace(NOTHING, places={0: "n1"}), "1 rank to end"),
        (Phase.PROBING, NOTHING, "what is found out of n2"),
        (Phase.WAITING, NOTHING, "the file system of the checkpoints"),
        (Phase.MOVING, NOTHING, "the scheduler, which was asked for a new allocation"),
        (Phase.ENDED, NOTHING, None),
    ],
)
def test_each_phase_says_what_it_waits_for(phase: Phase, waited: Waited, what: str | None) -> None:
    assert awaited(replace(STATE, phase=phase), waited) == what


def test_it_is_the_same_wait_while_fewer_are_waited_for() -> None:
    waits, late = Waits(), replace(NOTHING, absent=NODES)
    assert waits.look(STATE, late, 100.0) == Wait(what="agents on n1, n2", since=100.0)
    fewer = replace(late, absent=("n2",))
    assert waits.look(STATE, fewer, 105.0) == Wait(what="agents on n2", since=100.0)
    again = replace(STATE, generation=2)
    assert waits.look(again, fewer, 110.0) == Wait(what="agents on n2", since=110.0)
