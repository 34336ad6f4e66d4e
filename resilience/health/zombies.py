"""Zombies: processes that have ended and that nobody has waited for, in numbers.

Single ones are some daemon's; many say that a program which looks after jobs is stuck itself.
"""

from __future__ import annotations

from relight.counted import counted

from .check import Candidate, Check, Finding, Limit
from .processes import processes
from .result import Outcome

COUNT = Limit("zombies", "processes", 20, "processes")
OLD_S = 300.0  # Meta's GCM begins to count here


def check_zombies(candidate: Candidate) -> Finding:
    """Only those that were started a while ago: others may be waited for at any moment."""
    uptime_s = float((candidate.root / "proc/uptime").read_text().split()[0])
    old = [
        process.name
        for process in processes(candidate.root)
        if process.state == "Z" and uptime_s - process.started_s > OLD_S
    ]
    most = candidate.limit(COUNT)
    many = len(old) > most
    text = (
        f"{counted(len(old), 'zombie')}, at most {most:g}: {', '.join(sorted(set(old))[:5])}"
        if old
        else "no old zombie"
    )
    return Finding(Outcome.WARN if many else Outcome.PASS, text, float(len(old)), "processes")


CHECK = Check(
    name="zombies",
    reads="/proc/*/stat, /proc/uptime",
    threshold="at most 20 zombies older than 5 min",
    worst=Outcome.WARN,
    limits=(COUNT,),
    typical_s=0.05,
    timeout_s=10.0,
    run=check_zombies,
)
