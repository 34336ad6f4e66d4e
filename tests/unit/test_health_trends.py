"""Counters that grow on one node only, and what they raise."""

from __future__ import annotations

import pytest

from relight.resilience.health.gpu import throttling
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.trends import (
    CORRECTED_ECC,
    CORRECTED_MEMORY,
    LINK_DOWNS,
    REMAPPED_ROWS,
    SIGNS,
    THROTTLED_LOOKS,
    Sample,
    evidence_of_slow_steps,
    evidence_of_trends,
    trends,
)
from relight.resilience.health.watch import _with_throttling
from relight.resilience.ledger.faults import DAY_S, Fault
from relight.resilience.ledger.record import Identity
from relight.resilience.ledger.score import ENOUGH, standings

HOUR_S = 3600.0
NOW = 1_800_000_000.0


def samples(hours: float, counter: str, **counts: int) -> dict[str, Sample]:
    return {node: Sample(NOW + hours * HOUR_S, {counter: n}) for node, n in counts.items()}


@pytest.mark.parametrize("counter", SIGNS)
def test_growth_on_one_node_is_a_trend(counter: str) -> None:
    least = SIGNS[counter].least
    first = samples(0, counter, n1=7, n2=7, n3=7)
    assert trends(first, samples(1, counter, n1=7 + least - 1, n2=7, n3=7)) == []
    (trend,) = trends(first, samples(2, counter, n1=7 + least, n2=7, n3=7))
    assert (trend.node, trend.counter, trend.growth) == ("n1", counter, least)
    assert str(trend) == f"{counter}: {least} more in 2.0 h, 0 on most nodes"


def test_what_grows_everywhere_is_no_trend() -> None:
    first = samples(0, CORRECTED_ECC, n1=0, n2=0, n3=0)
    last = samples(1, CORRECTED_ECC, n1=9000, n2=1000, n3=1100)
    assert trends(first, last) == []
    last = samples(1, CORRECTED_ECC, n1=11_000, n2=1000, n3=1100)
    assert [trend.node for trend in trends(first, last)] == ["n1"]


def test_a_counter_that_was_reset_grew_from_zero() -> None:
    last = samples(1, LINK_DOWNS, n1=3)
    assert [t.growth for t in trends(samples(0, LINK_DOWNS, n1=50), last)] == [3]


def test_a_node_or_counter_that_was_not_there_before_says_nothing() -> None:
    last = samples(1, CORRECTED_MEMORY, n1=10**6)
    assert trends({}, last) == []
    assert trends({"n1": Sample(NOW, {})}, last) == []


def test_trends_raise_the_score_and_alone_never_keep_a_run_away() -> None:
    first = {"n1": Sample(NOW, dict.fromkeys(SIGNS, 0))}
    last = {"n1": Sample(NOW + HOUR_S, dict.fromkeys(SIGNS, 10**6))}
    seen = trends(first, last)
    assert len(seen) == len(SIGNS)
    record = evidence_of_trends("mini", "run-a", seen, Identity("boot"), NOW)
    assert record.fault is Fault.TREND
    assert [line.partition(":")[0] for line in record.lines] == list(SIGNS)
    (alone,) = standings([record], NOW)
    assert (alone.avoided, alone.score) == (False, 0.5)
    again = evidence_of_trends("mini", "run-b", seen, Identity("boot"), NOW)
    (twice,) = standings([record, again], NOW)
    assert (twice.avoided, twice.score >= ENOUGH) == (True, True)
    (later,) = standings([record, again], NOW + 15 * DAY_S)
    assert not later.avoided


def test_one_weak_sign_weighs_little() -> None:
    first, last = samples(0, THROTTLED_LOOKS, n1=0), samples(1, THROTTLED_LOOKS, n1=5)
    record = evidence_of_trends("mini", "a", trends(first, last), Identity(), NOW)
    assert record.weight == SIGNS[THROTTLED_LOOKS].weight < SIGNS[REMAPPED_ROWS].weight


def test_throttled_looks_are_counted() -> None:
    def seen(outcome: Outcome) -> NodeReport:
        result = CheckResult(
            check=throttling.CHECK.name,
            outcome=outcome,
            evidence="",
            seconds=0.0,
            fault=Fault.SLOW,
        )
        return NodeReport(
            node="n1", results=(result,), identity=Identity(), started=0.0, seconds=0.0
        )

    before = 0
    counted = []
    for outcome in (Outcome.PASS, Outcome.WARN, Outcome.WARN, Outcome.PASS):
        report, before = _with_throttling(seen(outcome), before)
        counted.append(report.counts[THROTTLED_LOOKS])
    assert counted == [0, 1, 2, 2]


def test_signs_of_one_run_add_up_once_each_and_alone_keep_nobody_away() -> None:
    slow = evidence_of_slow_steps("mini", "a", "n1", "steps take 1.3 times as long", NOW)
    assert (slow.fault, slow.weight) == (Fault.TREND, 0.3)
    first, last = samples(0, THROTTLED_LOOKS, n1=0), samples(1, THROTTLED_LOOKS, n1=5)
    grown = evidence_of_trends("mini", "a", trends(first, last), Identity("boot"), NOW)
    both = grown.later(slow)
    assert slow.file_name == grown.file_name
    assert (both.weight, len(both.lines)) == (0.5, 2)
    assert both.later(slow).weight == 0.5
    assert slow.later(slow).weight == 0.3
    again = evidence_of_trends("mini", "a", trends(first, last), Identity("boot"), NOW)
    assert grown.later(again).weight == grown.weight
