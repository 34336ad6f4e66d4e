"""Modes of GPUs: open to programs, whole, with ECC, and with a driver that stays.

nvmlComputeMode: 2 is prohibited.
"""

from __future__ import annotations

from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

PROHIBITED = 2


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    modes = (Reading.COMPUTE_MODE, Reading.MIG_MODE, Reading.ECC_MODE, Reading.PERSISTENCE_MODE)
    compute, mig, ecc, persistence = (gpu.read(mode) for mode in modes)
    if (compute, mig, ecc, persistence) == (None, None, None, None):
        return None
    if compute == PROHIBITED:
        return Outcome.FAIL_NODE, "compute mode is prohibited: no program can use it"
    odd = [
        *(["it is split (MIG)"] if mig else []),
        *(["ECC is off"] if ecc == 0 else []),
        *(["persistence is off: each start waits for the driver"] if persistence == 0 else []),
    ]
    return (Outcome.WARN, ", ".join(odd)) if odd else (Outcome.PASS, "whole, ECC on or absent")


CHECK = Check(
    name="gpu_modes",
    reads="NVML: compute mode, MIG mode, ECC mode, persistence mode",
    threshold="not prohibited; warns when split, without ECC, or without persistence",
    worst=Outcome.FAIL_NODE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
)
