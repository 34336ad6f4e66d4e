"""Counters that grow on one node and not on the others: signs of what is to come (pure).

A trend never speaks against a node by itself. It raises the node's score in the ledger, so that it
gets active tests before it is used, and is avoided when runs see it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ..ledger.faults import RULES, Fault
from ..ledger.record import Evidence, Identity

CORRECTED_MEMORY: Final = "corrected memory errors"
CORRECTED_ECC: Final = "corrected ECC errors of GPUs"
REMAPPED_ROWS: Final = "remapped rows of GPUs"
LINK_DOWNS: Final = "links gone down"
LINK_ERRORS: Final = "errors of NVLink"
THROTTLED_LOOKS: Final = "looks with throttled GPUs"
_MANY_TIMES: Final = 10  # the growth on most nodes
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sign:
    """From ``least`` on the growth of a counter within one attempt counts, with this weight."""

    least: int
    weight: float


# First guesses: `relight nodes show` tells what each has predicted, by which they can be judged.
SIGNS: Final[Mapping[str, Sign]] = {
    CORRECTED_MEMORY: Sign(100, 0.3),
    CORRECTED_ECC: Sign(1000, 0.3),
    REMAPPED_ROWS: Sign(1, 0.5),
    LINK_DOWNS: Sign(2, 0.3),
    LINK_ERRORS: Sign(100, 0.3),
    THROTTLED_LOOKS: Sign(3, 0.2),
}

SLOW_STEPS: Final = "slow steps"  # no counter: ranks are compared while they run
SLOW_WEIGHT: Final = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of a node at a Unix time."""

    time: float
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Trend:
    """A counter that grew on a node by ``growth`` in ``seconds``, and on most others by less."""

    node: str
    counter: str
    growth: int
    usual: float
    seconds: float

    def __str__(self) -> str:
        hours = self.seconds / _HOUR_S
        return f"{self.counter}: {self.growth} more in {hours:.1f} h, {self.usual:g} on most nodes"


def trends(first: Mapping[str, Sample], last: Mapping[str, Sample]) -> list[Trend]:
    """What grew on single nodes between two samples of each; one that was reset grew from zero."""
    found = []
    for counter, sign in SIGNS.items():
        growths = {
            node: _growth(first[node].counts[counter], sample.counts[counter])
            for node, sample in last.items()
            if node in first and counter in first[node].counts and counter in sample.counts
        }
        for node, growth in growths.items():
            others = [count for other, count in growths.items() if other != node]
            usual = float(median(others)) if others else 0.0
            if growth >= max(sign.least, _MANY_TIMES * usual):
                seconds = last[node].time - first[node].time
                found.append(Trend(node, counter, growth, usual, seconds))
    return found


def evidence_of_trends(
    cluster: str, run_id: str, seen: Sequence[Trend], identity: Identity, now: float
) -> Evidence:
    """The record of all trends of one node; never enough to avoid it by itself."""
    rule = RULES[Fault.TREND]
    return Evidence(
        cluster=cluster,
        node=seen[0].node,
        fault=Fault.TREND,
        lines=tuple(str(trend) for trend in seen),
        weight=min(sum(SIGNS[trend.counter].weight for trend in seen), rule.weight),
        ttl_s=rule.ttl_s,
        first_seen=now,
        last_seen=now,
        run_id=run_id,
        identity=identity,
    )


def evidence_of_slow_steps(
    cluster: str, run_id: str, node: str, detail: str, now: float
) -> Evidence:
    """The record of a node whose ranks take longer than others, for the node's sake."""
    return Evidence(
        cluster=cluster,
        node=node,
        fault=Fault.TREND,
        lines=(f"{SLOW_STEPS}: {detail}",),
        weight=SLOW_WEIGHT,
        ttl_s=RULES[Fault.TREND].ttl_s,
        first_seen=now,
        last_seen=now,
        run_id=run_id,
    )


def _growth(before: int, now: int) -> int:
    return now - before if now >= before else now
