"""How often to save: often enough that a failure costs little, seldom enough that saves do. Pure.

All times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from .past import Past

_DAY_S: Final = 86400.0
# Failures of hardware per node and second: 6.50 in 1000 node-days (Meta's RSC-1, arXiv 2410.21680).
NODE_FAILURE_RATE: Final = 6.50 / (1000 * _DAY_S)
# Programs fail too, and nobody publishes how often: no run is believed to last longer at first.
_PRIOR_MTTF_S: Final = _DAY_S
# The prior counts as much as a tenth of a failure that was seen, so that it is soon outweighed.
_PRIOR_FAILURES: Final = 0.1
FIRST_S: Final = 60.0  # nothing is known before the first save, so it is made soon
FLOOR_S: Final = 10.0
CAP_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """An interval with what it was made of. ``daly_s`` is None before a save was measured."""

    interval_s: float
    mttf_s: float
    daly_s: float | None


def prior_mttf_s(nodes: int) -> float:
    """What is believed of a run of so many nodes before it has run."""
    return min(1.0 / (nodes * NODE_FAILURE_RATE), _PRIOR_MTTF_S)


def mttf_s(past: Past, nodes: int) -> float:
    """Mean time to failure: the run's own, and the prior as long as there is little of that.

    Source: (alpha + hours) / (beta + failures), as LLNL's SCR does; the mean of a gamma posterior.
    """
    prior_s = _PRIOR_FAILURES * prior_mttf_s(nodes)
    return (prior_s + past.ran_s) / (_PRIOR_FAILURES + past.failures)


def daly_s(stall_s: float, mttf: float) -> float:
    """The best interval between saves that stop the work for ``stall_s`` each.

    Source: J. T. Daly, FGCS 22 (2006) 303, eq. 37; its first factor alone is Young's.
    """
    if stall_s >= 2 * mttf:
        return mttf
    ratio = stall_s / (2 * mttf)
    return math.sqrt(2 * stall_s * mttf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s


def cadence(past: Past, nodes: int) -> Cadence:
    """The interval for a run with this past: Daly's for what a save costs the steps.

    It is not shorter than a save takes until it is durable.
    """
    mean_s = mttf_s(past, nodes)
    if past.save_s is None or past.cost_s is None:
        return Cadence(interval_s=FIRST_S, mttf_s=mean_s, daly_s=None)
    best_s = daly_s(past.cost_s, mean_s)
    return Cadence(interval_s=bounded(best_s, past.save_s), mttf_s=mean_s, daly_s=best_s)


def bounded(interval_s: float, save_s: float) -> float:
    """The interval that is kept where another would be the best."""
    return min(max(interval_s, save_s, FLOOR_S), max(CAP_S, save_s))


def useful_share(interval_s: float, stall_s: float, restart_s: float, mttf: float) -> float:
    """The part of the time that goes into work that lasts, with failures at random.

    Source: Daly (2006), eq. 20: the expected wall time with exponential failures.
    """
    exponent = (restart_s + interval_s + stall_s) / mttf
    if exponent > 700:  # exp would overflow: nothing ever gets done
        return 0.0
    wall_s = mttf * math.exp(restart_s / mttf) * math.expm1((interval_s + stall_s) / mttf)
    return interval_s / wall_s


def meta_share(interval_s: float, stall_s: float, restart_s: float, mttf: float) -> float:
    """The same by the formula of Meta (arXiv 2410.21680): no second failure before the next save.

    It is negative where failures are too frequent for that.
    """
    return (1 - (restart_s + interval_s / 2) / mttf) / (1 + stall_s / interval_s)
