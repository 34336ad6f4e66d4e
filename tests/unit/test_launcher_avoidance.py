"""Which known bad nodes a new job avoids, and which it may not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from relight.launcher.avoidance import avoidance_of, choose
from relight.resilience.ledger import apart
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Evidence
from relight.resilience.ledger.score import Standing, standings

NODES = {f"n{number}" for number in range(1, 9)}


def accused(*nodes: str) -> list[Standing]:
    """These nodes, worst first."""
    return standings(
        [
            Evidence(
                cluster="mini",
                node=node,
                fault=Fault.HARDWARE,
                lines=("Xid 79",),
                weight=1.0,
                ttl_s=1e6,
                first_seen=0.0,
                last_seen=100.0 - age,
                run_id="a",
            )
            for age, node in enumerate(nodes)
        ],
        100.0,
    )


def avoided(
    *nodes: str,
    usable: set[str] = NODES,
    excluded: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
    needed: int = 2,
) -> list[str]:
    choice = choose(accused(*nodes), usable, excluded, required, needed)
    names = [one.node for one in choice.avoided]
    assert [one.node for one, _ in choice.kept] == [
        node for node in nodes if node not in names and node not in excluded
    ]
    return names


def test_bad_nodes_are_avoided() -> None:
    assert avoided("n3", "n5") == ["n3", "n5"]


def test_the_worst_quarter_of_the_partition_at_most() -> None:
    assert avoided("n3", "n5", "n1") == ["n3", "n5"]
    assert avoided("n3", "n5", usable={"n1", "n3", "n5"}, needed=1) == ["n3"]


def test_enough_nodes_are_left_for_the_job() -> None:
    assert avoided("n3", needed=8) == []
    assert avoided("n3", "n5", needed=7) == ["n3"]
    assert avoided("n3", "n5", needed=6, excluded=("n1",)) == ["n3"]


def test_each_reason_is_told() -> None:
    bad = accused("n1", "n2", "n3", "n4")
    whys = [choose(bad, NODES, (), ("n1",), needed).kept for needed in (1, 7)]
    assert [[f"{one.node}: {why}" for one, why in kept] for kept in whys] == [
        [
            "n1: it is asked for by name",
            "n4: more than a quarter of the 8 usable nodes would be avoided",
        ],
        [
            "n1: it is asked for by name",
            *(
                f"{node}: fewer than the 7 nodes that the job needs would be left"
                for node in ("n3", "n4")
            ),
        ],
    ]


def test_what_the_user_excludes_is_not_excluded_twice() -> None:
    assert avoided("n3", "n5", excluded=("n3",)) == ["n5"]


def test_what_the_user_asks_for_by_name_is_not_excluded() -> None:
    assert avoided("n3", "n5", required=("n3",)) == ["n5"]


def test_a_node_that_is_down_costs_nothing_and_may_come_back() -> None:
    assert avoided("n9", needed=8) == ["n9"]
    down = [f"n{number}" for number in range(9, 13)]
    assert avoided(*down, "n3", "n5", "n1") == [*down, "n3", "n5"]  # nor does it use up the quarter


def test_a_silent_ledger_costs_the_exclusion_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_LEDGER", "/dead/ledger")
    monkeypatch.setattr(apart, "_silent", {Path("/dead/ledger"): time.monotonic()})
    found = avoidance_of({}, None, 1)
    assert found.exclude is None
    assert "/dead/ledger gave no answer" in found.notes[0]
