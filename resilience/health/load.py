"""Load: nobody else keeps the processors busy."""

from __future__ import annotations

import math
import os

from relight.counted import counted

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit
from .result import Outcome

PER_CPU = Limit("load", "per_cpu", 1.5, "runnable tasks per processor")


def check_load(candidate: Candidate) -> Finding:
    load = float((candidate.root / "proc/loadavg").read_text().split()[0])
    cpus = os.cpu_count() or 1
    if not math.isfinite(load) or load < 0:
        return Finding(Outcome.UNKNOWN, f"the kernel says that the load is {load}")
    most = candidate.limit(PER_CPU)
    text = f"a load of {load:.1f} on {counted(cpus, 'processor')}, at most {most:g} for each"
    busy = load > most * cpus
    return Finding(Outcome.WARN if busy else Outcome.PASS, text, load, "tasks")


CHECK = Check(
    name="load",
    reads="the first number of /proc/loadavg (one minute)",
    threshold="at most 1.5 per processor",
    worst=Outcome.WARN,
    fault=Fault.SLOW,
    limits=(PER_CPU,),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_load,
)
