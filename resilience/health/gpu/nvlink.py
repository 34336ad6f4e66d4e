"""NVLink: all links of a GPU are active."""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.NVLINKS, Reading.NVLINKS_DOWN)
    if numbers is None or numbers[0] == 0:
        return None
    links, down = numbers
    if down == links:
        # So look boards that have the connector and no bridge; the fabric check judges switches.
        return Outcome.WARN, f"none of {links} links to other GPUs is active"
    if down:
        return Outcome.FAIL_NODE, f"{down} of {links} links to other GPUs are inactive"
    return Outcome.PASS, f"{links} links to other GPUs active"


CHECK = Check(
    name="gpu_nvlink",
    reads="NVML or amdsmi: the state of each NVLink or XGMI link",
    threshold="all active; warns when none is",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
