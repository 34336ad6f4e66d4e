"""What trends have predicted, so that their weights can be judged (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from .faults import Fault
from .record import Evidence, Record

_FAILURES: Final = frozenset({Fault.HARDWARE, Fault.NETWORK, Fault.SLOW, Fault.LOST})


@dataclass(frozen=True, slots=True)
class Prediction:
    """A counter grew on a node, and ``lead_s`` later, within the trend's time, it failed."""

    cluster: str
    node: str
    counter: str
    fault: Fault
    lead_s: float


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How a sign has done: how often it was seen, how often a failure followed, how much later."""

    counter: str
    seen: int
    right: int
    lead_s: float | None  # the median


def predictions(records: Iterable[Record]) -> list[Prediction]:
    """Each trend with the first failure of its node that followed, by whatever run."""
    trends, failures = [], defaultdict(list)
    for record in records:
        if isinstance(record, Evidence) and record.fault is Fault.TREND:
            trends.append(record)
        elif isinstance(record, Evidence) and record.fault in _FAILURES:
            failures[record.cluster, record.node].append(record)
    found = []
    for trend in trends:
        later = [
            one
            for one in failures[trend.cluster, trend.node]
            if trend.first_seen < one.first_seen <= trend.expires
        ]
        if later:
            failure = min(later, key=lambda one: one.first_seen)
            lead_s = failure.first_seen - trend.first_seen
            found += [
                Prediction(trend.cluster, trend.node, counter, failure.fault, lead_s)
                for counter in trend.counters
            ]
    return found


def track_record(records: Iterable[Record]) -> list[TrackRecord]:
    """How each sign has done in all that a ledger still holds."""
    kept = list(records)
    seen = Counter(
        counter
        for record in kept
        if isinstance(record, Evidence) and record.fault is Fault.TREND
        for counter in record.counters
    )
    leads: dict[str, list[float]] = {counter: [] for counter in seen}
    for one in predictions(kept):
        leads[one.counter].append(one.lead_s)
    return [
        TrackRecord(counter, seen[counter], len(lead), median(lead) if lead else None)
        for counter, lead in leads.items()
    ]
