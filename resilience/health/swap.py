"""Swap: the node is not paging somebody's memory out."""

from __future__ import annotations

from .check import Candidate, Check, Finding, Limit
from .meminfo import read_meminfo
from .result import Outcome

USED = Limit("swap", "used_bytes", 1024**3, "bytes")
MIB = 1024**2


def check_swap(candidate: Candidate) -> Finding:
    seen = read_meminfo(candidate.root)
    total, free = seen["SwapTotal"], seen["SwapFree"]
    used_bytes = total - free
    if not 0 <= used_bytes <= total:
        return Finding(Outcome.UNKNOWN, f"the kernel says {free} of {total} bytes of swap are free")
    most_bytes = candidate.limit(USED)
    text = f"{used_bytes / MIB:.0f} MiB swapped out, at most {most_bytes / MIB:.0f} MiB"
    outcome = Outcome.WARN if used_bytes > most_bytes else Outcome.PASS
    return Finding(outcome, text, float(used_bytes), "bytes")


CHECK = Check(
    name="swap",
    reads="SwapTotal and SwapFree of /proc/meminfo",
    threshold="at most 1 GiB used",
    worst=Outcome.WARN,
    limits=(USED,),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_swap,
    repeated=True,
)
