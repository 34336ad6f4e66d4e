"""Stuck processes: some that wait in the kernel and make no progress, mostly for a dead disk."""

from __future__ import annotations

import time
from pathlib import Path

from .check import Candidate, Check, Finding, Limit
from .result import Outcome

PROCESSES = Limit("stuck", "processes", 0, "processes")
INTERVAL_S = 0.3
KTHREADD = 2  # parent of the kernel's own threads, some of which always wait


def check_stuck(candidate: Candidate) -> Finding:
    """Compare two looks: who waits in both with the same CPU time is stuck."""
    before = waiting(candidate.root / "proc")
    time.sleep(INTERVAL_S)
    after = waiting(candidate.root / "proc")
    stuck = sorted(name for pid, name in after.items() if before.get(pid) == name)
    many = len(stuck) > candidate.limit(PROCESSES)
    text = f"{len(stuck)} processes wait in the kernel: {', '.join(stuck[:5])}"
    return Finding(
        Outcome.WARN if many else Outcome.PASS,
        text if stuck else "no process is stuck",
        float(len(stuck)),
        "processes",
    )


def waiting(proc: Path) -> dict[int, str]:
    """Processes in uninterruptible sleep, with their name and the CPU time that they have had."""
    found = {}
    for entry in proc.glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue  # it has ended
        # The name stands in parentheses and may hold any character (man 5 proc).
        name = text[text.index("(") + 1 : text.rindex(")")]
        state, parent, *rest = text[text.rindex(")") + 1 :].split()
        if state == "D" and int(parent) != KTHREADD:
            found[int(entry.parent.name)] = f"{name} after {int(rest[9]) + int(rest[10])} ticks"
    return found


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
