"""PCIe: the slot gives the GPU all its lanes, and under load their full speed.

An idle GPU falls back to a lower generation; nvmlClocksEventReasons says whether it is idle.
"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

IDLE = 0x1


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.PCIE_WIDTH, Reading.PCIE_WIDTH_MAX)
    if numbers is None:
        return None
    width, most = numbers
    if width < most:
        return Outcome.FAIL_NODE, f"{width} of {most} PCIe lanes"
    speeds = ask(gpu, Reading.PCIE_GENERATION, Reading.PCIE_GENERATION_MAX)
    reasons = gpu.read(Reading.THROTTLE_REASONS)
    if speeds is not None and reasons is not None and not reasons & IDLE and speeds[0] < speeds[1]:
        return Outcome.WARN, f"PCIe generation {speeds[0]} of {speeds[1]} under load"
    return Outcome.PASS, f"{width} of {most} PCIe lanes"


CHECK = Check(
    name="gpu_pcie",
    reads="NVML: current and greatest PCIe link width and generation, whether the GPU is idle",
    threshold="all lanes; warns of a lower generation under load",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
