"""What trends have predicted, as time passes."""

from __future__ import annotations

import dataclasses

import pytest

from relight.resilience.ledger.faults import DAY_S, HOUR_S, RULES, Fault
from relight.resilience.ledger.prediction import predictions, track_record
from relight.resilience.ledger.record import Evidence, Release

T0 = 1_800_000_000.0
LINKS = "links gone down: 3 more in 2.0 h, 0 on most nodes"
ROWS = "remapped rows of GPUs: 1 more in 2.0 h, 0 on most nodes"


def seen(fault: Fault, hours: float, *lines: str, node: str = "n1", run: str = "a") -> Evidence:
    moment = T0 + hours * HOUR_S
    return Evidence(
        cluster="mini",
        node=node,
        fault=fault,
        lines=lines or ("x",),
        weight=RULES[fault].weight,
        ttl_s=RULES[fault].ttl_s,
        first_seen=moment,
        last_seen=moment,
        run_id=run,
    )


def trend(hours: float = 0.0, *lines: str, node: str = "n1") -> Evidence:
    return seen(Fault.TREND, hours, *(lines or (LINKS,)), node=node)


def test_the_first_failure_that_follows_was_predicted() -> None:
    found = predictions(
        [
            seen(Fault.LOST, 30, run="c"),
            trend(0.0, LINKS, ROWS),
            seen(Fault.NETWORK, 10, run="b"),
        ]
    )
    assert [(one.counter, one.fault, one.lead_s) for one in found] == [
        ("links gone down", Fault.NETWORK, 10 * HOUR_S),
        ("remapped rows of GPUs", Fault.NETWORK, 10 * HOUR_S),
    ]


@pytest.mark.parametrize(
    "failure",
    [
        seen(Fault.HARDWARE, -1),
        seen(Fault.HARDWARE, 14 * 24 + 1),
        seen(Fault.HARDWARE, 10, node="n2"),
        seen(Fault.PROGRAM, 10),
        seen(Fault.CONDITION, 10),
        seen(Fault.HAND, 10),
        trend(10),
        dataclasses.replace(seen(Fault.HARDWARE, 10), cluster="other"),
        Release(cluster="mini", node="n1", time=T0 + HOUR_S, reason="x"),
    ],
)
def test_what_was_not_predicted(failure: Evidence | Release) -> None:
    assert predictions([trend(), failure]) == []


def test_each_sign_is_judged_by_what_it_said() -> None:
    records = [
        trend(0.0, LINKS),
        trend(0.0, LINKS, node="n2"),
        trend(0.0, LINKS, ROWS, node="n3"),
        seen(Fault.NETWORK, 10, run="b"),
        seen(Fault.HARDWARE, 20, run="b", node="n3"),
    ]
    assert [(s.counter, s.seen, s.right, s.lead_s) for s in track_record(records)] == [
        ("links gone down", 3, 2, 15 * HOUR_S),
        ("remapped rows of GPUs", 1, 1, 20 * HOUR_S),
    ]
    (alone,) = track_record([trend()])
    assert (alone.seen, alone.right, alone.lead_s) == (1, 0, None)


def test_a_repaired_node_still_tells_what_was_right() -> None:
    repaired = Release(cluster="mini", node="n1", time=T0 + DAY_S, reason="repaired")
    assert len(predictions([trend(), seen(Fault.LOST, 3, run="b"), repaired])) == 1
