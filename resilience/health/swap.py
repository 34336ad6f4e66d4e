"""Swap: the node is not paging somebody's memory out."""

from __future__ import annotations

from .check import Candidate, Check, Finding, Limit
from .result import Outcome

USED = Limit("swap", "used_bytes", 1024**3, "bytes")
MIB = 1024**2


def check_swap(candidate: Candidate) -> Finding:
    lines = (candidate.root / "proc/meminfo").read_text().splitlines()
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    total, free = (int(fields[name].split()[0]) * 1024 for name in ("SwapTotal", "SwapFree"))
    used_bytes = total - free
    if not 0 <= used_bytes <= total:
        return Finding(Outcome.UNKNOWN, f"the kernel says {free} of {total} bytes of swap are free")
    outcome = Outcome.WARN if used_bytes > candidate.limit(USED) else Outcome.PASS
    return Finding(outcome, f"{used_bytes // MIB} MiB swapped out", float(used_bytes), "bytes")


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
