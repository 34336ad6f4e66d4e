"""Clock: the node's time is near the supervisor's.

The offset holds the time that the start of the node's program took, so that a clock that is behind
shows at once and one that is ahead only when it is ahead by more than a slow start.
"""

from __future__ import annotations

import math

from .check import Candidate, Check, Finding
from .result import Outcome

BEHIND_LIMIT_S = 1.0
AHEAD_LIMIT_S = 30.0


def check_clock(candidate: Candidate) -> Finding:
    """Compare the two clocks; a wrong one harms only logs and time-outs, so it never excludes."""
    offset_s = candidate.clock_offset_s
    if not math.isfinite(offset_s):
        return Finding(Outcome.UNKNOWN, f"the offset is {offset_s}")
    off = not -BEHIND_LIMIT_S <= offset_s <= AHEAD_LIMIT_S
    return Finding(
        Outcome.WARN if off else Outcome.PASS,
        f"{offset_s:+.1f} s from the supervisor's clock, start of this program included; "
        f"at most {BEHIND_LIMIT_S:g} s behind and {AHEAD_LIMIT_S:g} s ahead",
        offset_s,
        "s",
    )


CHECK = Check(
    name="clock",
    reads="the time here when the program began, and the supervisor's when it asked for that",
    threshold="at most 1 s behind, at most 30 s ahead",
    worst=Outcome.WARN,
    typical_s=0.01,
    timeout_s=5.0,
    run=check_clock,
)
