"""Retired pages (before A100): memory pages that the driver no longer uses.

NVIDIA, "Dynamic Page Retirement": a board is due for replacement at 60 pages or more.
"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Limit
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

PAGES = Limit("gpu_retired", "pages", 60, "pages")


def judge(candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.RETIRED_DOUBLE_BIT, Reading.RETIRED_SINGLE_BIT)
    if numbers is None:
        return None
    pages = sum(numbers)
    if pages >= (most := candidate.limit(PAGES)):
        return Outcome.FAIL_NODE, f"{pages} memory pages retired, bad from {most:g} on"
    if gpu.read(Reading.RETIRED_PENDING):
        return Outcome.WARN, f"{pages} memory pages retired, and one waits for a reboot"
    return Outcome.PASS, f"{pages} memory pages retired"


CHECK = Check(
    name="gpu_retired",
    reads="NVML: retired pages and whether one is pending",
    threshold="fewer than 60; warns while one is pending",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(PAGES,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
