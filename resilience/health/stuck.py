"""Stuck processes: some that wait in the kernel and make no progress, mostly for a dead disk."""

from __future__ import annotations

import time
from pathlib import Path

from relight.counted import counted

from .check import Candidate, Check, Finding, Limit
from .processes import processes
from .result import Outcome

PROCESSES = Limit("stuck", "processes", 0, "processes")
INTERVAL_S = 0.3
KTHREADD = 2  # parent of the kernel's own threads, some of which always wait


def check_stuck(candidate: Candidate) -> Finding:
    """Compare two looks: who waits in both with the same CPU time is stuck."""
    before = waiting(candidate.root)
    time.sleep(INTERVAL_S)
    after = waiting(candidate.root)
    stuck = sorted(name for pid, name in after.items() if before.get(pid) == name)
    most = candidate.limit(PROCESSES)
    many = len(stuck) > most
    seen = f"{counted(len(stuck), 'process')} in the kernel's wait, at most {most:g}"
    text = f"{seen}: {', '.join(stuck[:5])}"
    return Finding(
        Outcome.WARN if many else Outcome.PASS,
        text if stuck else "no process is stuck",
        float(len(stuck)),
        "processes",
    )


def waiting(root: Path) -> dict[int, str]:
    """Processes in uninterruptible sleep, with their name and the CPU time that they have had."""
    return {
        process.pid: f"{process.name} after {process.cpu_ticks} ticks"
        for process in processes(root)
        if process.state == "D" and process.parent != KTHREADD
    }


CHECK = Check(
    name="stuck",
    reads="/proc/*/stat, twice within 0.3 s",
    threshold="no process in uninterruptible sleep both times",
    worst=Outcome.WARN,
    limits=(PROCESSES,),
    typical_s=0.4,
    timeout_s=10.0,
    run=check_stuck,
)
