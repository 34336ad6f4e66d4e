"""Error counters, as they grow: what they reached since the boot says nothing about now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from .check import Finding, not_judged
from .result import Outcome

INTERVAL_S = 0.3

Counters = Mapping[str, int]


def look_twice(read: Callable[[], Counters], most_per_s: float, absent: str) -> Finding:
    """How fast the counters grow now."""
    before = read()
    if not before:
        return not_judged(absent)
    started = time.monotonic()
    time.sleep(INTERVAL_S)
    after = read()
    seconds = max(time.monotonic() - started, 1e-3)
    return judge_growth(before, after, seconds, most_per_s)


def judge_growth(before: Counters, after: Counters, seconds: float, most_per_s: float) -> Finding:
    """How fast each counter grew (pure); one that was reset in between grew from zero."""
    rates = {}
    for name, count in after.items():
        start = before.get(name, 0)
        rates[name] = (count - start if count >= start else count) / seconds
    fast = {name: rate for name, rate in rates.items() if rate > most_per_s}
    seen = ", ".join(f"{name} grows by {rate:.0f}/s" for name, rate in list(fast.items())[:3])
    text = f"{seen}; at most {most_per_s:g}/s" if fast else "no counter grows fast"
    worst = max(rates.values(), default=0.0)
    return Finding(Outcome.WARN if fast else Outcome.PASS, text, worst, "errors/s")
