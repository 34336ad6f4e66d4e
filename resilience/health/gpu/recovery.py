"""Recovery action: the driver's own verdict on a GPU, which beats any list of errors.

NVML field 230, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from driver 570 on.
"""

from __future__ import annotations

from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

_ACTIONS: Final = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    action = gpu.read(Reading.RECOVERY_ACTION)
    if action is None:
        return None
    if action == 0:
        return Outcome.PASS, "needs no recovery"
    return Outcome.FAIL_NODE, f"the driver asks: {_ACTIONS.get(action, f'action {action}')}"


CHECK = Check(
    name="gpu_recovery",
    reads="NVML field 230 (recovery action)",
    threshold="none",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
    repeated=True,
)
