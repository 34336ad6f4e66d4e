"""Uptime: a node that has just booted is worth a note, since somebody or something reset it."""

from __future__ import annotations

import math

from .check import Candidate, Check, Finding, Limit
from .result import Outcome

LEAST = Limit("uptime", "seconds", 600, "seconds since the boot")


def check_uptime(candidate: Candidate) -> Finding:
    """600 s is what Meta's GCM asks for."""
    seconds = float((candidate.root / "proc/uptime").read_text().split()[0])
    if not math.isfinite(seconds) or seconds < 0:
        return Finding(Outcome.UNKNOWN, f"the kernel says that it is up for {seconds} s")
    least_s = candidate.limit(LEAST)
    text = f"up for {seconds:.0f} s, at least {least_s:g} s"
    return Finding(Outcome.WARN if seconds < least_s else Outcome.PASS, text, seconds, "s")


CHECK = Check(
    name="uptime",
    reads="/proc/uptime",
    threshold="at least 600 s",
    worst=Outcome.WARN,
    limits=(LEAST,),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_uptime,
)
