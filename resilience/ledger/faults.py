"""Kinds of evidence against a node: how much each weighs, and for how long it counts (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S


class Fault(StrEnum):
    """What is wrong with a node, as far as the evidence says."""

    HARDWARE = "hardware"  # it does not heal by itself
    NETWORK = "network"
    SLOW = "slow"
    LOST = "lost"  # it went down or fell silent
    CONDITION = "condition"  # full, unmounted, occupied: somebody will tidy up
    PROGRAM = "program"  # seen here, but programs cause it more often than nodes
    TREND = "trend"  # a counter grows here and not elsewhere: nothing has failed yet
    HAND = "by hand"


@dataclass(frozen=True, slots=True)
class Rule:
    """``weight`` 1 is enough to avoid the node; evidence counts for ``ttl_s`` after it was seen."""

    weight: float
    ttl_s: float


RULES: Final = {
    Fault.HARDWARE: Rule(1.0, 14 * DAY_S),
    Fault.NETWORK: Rule(1.0, DAY_S),
    Fault.SLOW: Rule(1.0, 3 * DAY_S),
    Fault.LOST: Rule(1.0, DAY_S),
    Fault.CONDITION: Rule(1.0, 6 * HOUR_S),
    Fault.PROGRAM: Rule(0.5, 6 * HOUR_S),
    Fault.TREND: Rule(0.5, 14 * DAY_S),  # at most, for all trends that a run sees
    Fault.HAND: Rule(1.0, 14 * DAY_S),
}


def gravest(faults: list[Fault]) -> Fault:
    """The fault that counts longest; a node without any named fault is in a bad condition."""
    return max(faults, key=lambda fault: RULES[fault].ttl_s, default=Fault.CONDITION)
