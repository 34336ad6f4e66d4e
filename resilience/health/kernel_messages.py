"""Kernel messages: what the kernel itself complained of lately, other than GPUs."""

from __future__ import annotations

import re
from typing import Final

from relight.counted import counted

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit, not_judged
from .kernel_log import KernelLine, read_kernel_log
from .result import Outcome

HOURS = Limit("kernel_messages", "hours", 24, "hours")
_HOUR_S: Final = 3600.0
_BAD: Final = re.compile(
    r"\[Hardware Error\]: .*(?:Uncorrected|(?<!non-)(?<!Non-)fatal)|Remounting filesystem read-only"
)
_ODD: Final = re.compile(
    r"\[Hardware Error\]|blocked for more than \d+ seconds|soft lockup|I/O error, dev"
    r"|was evicted by|Connection to \S+ \(at .*\) was lost|Lost carrier|limited by .* PCIe",
    re.IGNORECASE,
)
_SHOWN_CHARS: Final = 160


def check_kernel_messages(candidate: Candidate) -> Finding:
    try:
        lines = read_kernel_log(candidate.root)
    except OSError as error:
        return not_judged(f"the kernel's log: {error.strerror}")
    return judge_messages(lines, candidate.limit(HOURS) * _HOUR_S)


def judge_messages(lines: list[KernelLine], window_s: float) -> Finding:
    """What the lines within the window say against the node (pure)."""
    recent = [line for line in lines if line.age_s <= window_s]
    for outcome, pattern in ((Outcome.FAIL_NODE, _BAD), (Outcome.WARN, _ODD)):
        found = [line for line in recent if pattern.search(line.text)]
        if found:
            newest = found[-1]
            text = f"{newest.age_s / _HOUR_S:.1f} h ago: {newest.text[:_SHOWN_CHARS]}"
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            return Finding(outcome, text + more, float(len(found)), "messages")
    return Finding(Outcome.PASS, f"none of note in {counted(len(recent), 'line')}")


CHECK = Check(
    name="kernel_messages",
    reads="/dev/kmsg",
    threshold="no uncorrected hardware error or read-only remount in 24 h; warns of lesser ones",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(HOURS,),
    typical_s=0.1,
    timeout_s=10.0,
    run=check_kernel_messages,
    repeated=True,
)
