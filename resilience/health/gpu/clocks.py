"""Clocks: nobody has left the GPU slower than its maker delivers it.

30 MHz is where Meta's GCM begins to warn.
"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Limit
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

BELOW = Limit("gpu_clocks", "below_default_mhz", 30, "MHz under the board's default")


def judge(candidate: Candidate, gpu: Gpu) -> Answer | None:
    clocks = ask(gpu, Reading.CLOCK_SET, Reading.CLOCK_DEFAULT)
    if clocks is None:
        return None
    set_mhz, default_mhz = clocks
    most_mhz = candidate.limit(BELOW)
    text = f"set to {set_mhz} of {default_mhz} MHz, at most {most_mhz:g} MHz below"
    return (Outcome.WARN if default_mhz - set_mhz > most_mhz else Outcome.PASS), text


CHECK = Check(
    name="gpu_clocks",
    reads="NVML: SM clock for applications, and its default",
    threshold="at most 30 MHz below the default",
    worst=Outcome.WARN,
    fault=Fault.SLOW,
    limits=(BELOW,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
)
