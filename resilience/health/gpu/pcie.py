"""PCIe width: the slot gives the GPU all its lanes. (The generation falls when a GPU is idle.)"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.PCIE_WIDTH, Reading.PCIE_WIDTH_MAX)
    if numbers is None:
        return None
    width, most = numbers
    narrow = width < most
    return (Outcome.FAIL_NODE if narrow else Outcome.PASS), f"{width} of {most} PCIe lanes"


CHECK = Check(
    name="gpu_pcie",
    reads="NVML: current and greatest PCIe link width",
    threshold="all lanes",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
