"""Errors of InfiniBand ports, as they grow: counters since the boot say nothing about now."""

from __future__ import annotations

import time
from pathlib import Path

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit, not_judged
from .result import Outcome

GROWTH = Limit("infiniband_errors", "per_second", 10, "errors per second")
INTERVAL_S = 0.3
COUNTERS = (
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
)


def check_infiniband_errors(candidate: Candidate) -> Finding:
    before = _counters(candidate.root)
    if not before:
        return not_judged("no InfiniBand here")
    started = time.monotonic()
    time.sleep(INTERVAL_S)
    after = _counters(candidate.root)
    seconds = max(time.monotonic() - started, 1e-3)
    return judge_growth(before, after, seconds, candidate.limit(GROWTH))


def judge_growth(
    before: dict[str, int], after: dict[str, int], seconds: float, most: float
) -> Finding:
    """How fast each counter grew (pure); one that was reset in between grew from zero."""
    rates = {}
    for name, count in after.items():
        start = before.get(name, 0)
        rates[name] = (count - start if count >= start else count) / seconds
    fast = {name: rate for name, rate in rates.items() if rate > most}
    text = "; ".join(f"{name} grows by {rate:.0f}/s" for name, rate in list(fast.items())[:3])
    worst = max(rates.values(), default=0.0)
    return Finding(
        Outcome.WARN if fast else Outcome.PASS, text or "no counter grows fast", worst, "errors/s"
    )


def _counters(root: Path) -> dict[str, int]:
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    paths = [port / name for port in ports for name in COUNTERS if (port / name).exists()]
    return {f"{p.parents[3].name}/{p.parents[1].name} {p.name}": int(p.read_text()) for p in paths}


CHECK = Check(
    name="infiniband_errors",
    reads="error counters of /sys/class/infiniband/*/ports/*/counters, twice within 0.3 s",
    threshold="no counter grows by more than 10 a second",
    worst=Outcome.WARN,
    fault=Fault.NETWORK,
    limits=(GROWTH,),
    typical_s=0.4,
    needs=("sys/class/infiniband",),
    timeout_s=10.0,
    run=check_infiniband_errors,
    repeated=True,
)
