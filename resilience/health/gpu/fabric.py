"""NVSwitch fabric: the GPU has joined it.

nvmlGpuFabricInfo: state 3 is completed, status 0 is good.
"""

from __future__ import annotations

from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

_STATES: Final = {1: "not started", 2: "in progress", 3: "completed"}


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.FABRIC_STATE, Reading.FABRIC_STATUS)
    if numbers is None or numbers[0] == 0:
        return None
    state, status = numbers
    good = state == 3 and status == 0
    text = f"joining the fabric: {_STATES.get(state, f'state {state}')}, status {status}"
    return (Outcome.PASS if good else Outcome.FAIL_NODE), text


CHECK = Check(
    name="gpu_fabric",
    reads="NVML: fabric state and status",
    threshold="completed without error, where there is a fabric",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
