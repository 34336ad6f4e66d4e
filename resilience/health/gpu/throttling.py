"""Throttling: the GPU runs slower to save itself.

Bits of nvmlClocksEventReasons. An idle GPU hides them, so this only warns; the active tests see it
under load.
"""

from __future__ import annotations

from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

_REASONS: Final = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    bits = gpu.read(Reading.THROTTLE_REASONS)
    if bits is None:
        return None
    seen = [name for bit, name in _REASONS.items() if bits & bit]
    return (Outcome.WARN, ", ".join(seen)) if seen else (Outcome.PASS, "not throttled")


CHECK = Check(
    name="gpu_throttling",
    reads="NVML: current clocks event reasons",
    threshold="no hardware slowdown, thermal slowdown or power brake",
    worst=Outcome.WARN,
    fault=Fault.SLOW,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
