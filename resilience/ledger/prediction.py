"""What trends have predicted, so that their weights can be judged (pure)."""

from __future__ import annotations

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
    evidence = [record for record in records if isinstance(record, Evidence)]
    found = []
    for trend in evidence:
        if trend.fault is not Fault.TREND:
            continue
        later = [
            one
            for one in evidence
            if (one.cluster, one.node) == (trend.cluster, trend.node)
            and one.fault in _FAILURES
            and trend.first_seen < one.first_seen <= trend.expires
        ]
        if later:
            failure = min(later, key=lambda one: one.first_seen)
            lead_s = failure.first_seen - trend.first_seen
            found += [
                Prediction(trend.cluster, trend.node, counter, failure.fault, lead_s)
                for counter in counters(trend)
            ]
    return found


def track_record(records: Iterable[Record]) -> list[TrackRecord]:
    """How each sign has done in all that a ledger still holds."""
    kept = list(records)
    seen = [
        counter
        for record in kept
        if isinstance(record, Evidence) and record.fault is Fault.TREND
        for counter in counters(record)
    ]
    right = predictions(kept)
    leads = {counter: [one.lead_s for one in right if one.counter == counter] for counter in seen}
    return [
        TrackRecord(counter, seen.count(counter), len(lead), median(lead) if lead else None)
        for counter, lead in leads.items()
    ]


def counters(trend: Evidence) -> list[str]:
    """The counters that a record of trends names: each line begins with one."""
    return list(dict.fromkeys(line.partition(":")[0] for line in trend.lines))
