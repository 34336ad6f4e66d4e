"""Modes of GPUs: open to programs, whole, and with ECC. nvmlComputeMode: 2 is prohibited."""

from __future__ import annotations

from ..check import Candidate, Check
from ..result import Outcome
from .each import Answer, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

PROHIBITED = 2


def judge(_candidate: Candidate, gpu: Gpu) -> Answer | None:
    compute, mig, ecc = (
        gpu.read(reading) for reading in (Reading.COMPUTE_MODE, Reading.MIG_MODE, Reading.ECC_MODE)
    )
    if compute is None and mig is None and ecc is None:
        return None
    if compute == PROHIBITED:
        return Outcome.FAIL_NODE, "compute mode is prohibited: no program can use it"
    odd = [*(["it is split (MIG)"] if mig else []), *(["ECC is off"] if ecc == 0 else [])]
    return (Outcome.WARN, ", ".join(odd)) if odd else (Outcome.PASS, "whole, ECC on or absent")


CHECK = Check(
    name="gpu_modes",
    reads="NVML: compute mode, MIG mode, ECC mode",
    threshold="not prohibited; warns when split or without ECC",
    worst=Outcome.FAIL_NODE,
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge),
)
