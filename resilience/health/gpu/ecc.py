"""Memory errors of GPUs: what could not be corrected, and what is corrected too often.

Limits as in Meta's GCM, Azure's health checks and the ML Engineering book: any uncorrected error
since the driver was loaded; more than 4 in SRAM over the board's life is a case for replacement.
But where the row of memory waits to be remapped the error is contained, and does not affect later
work until the board is reset (NVML API Reference, nvmlDeviceGetRemappedRows; "GPU Memory Error
Management"). That it comes again is seen by its XID.
"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Limit
from ..result import Outcome
from ..trends import CORRECTED_ECC
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

UNCORRECTED = Limit("gpu_ecc", "uncorrected", 0, "errors since the driver was loaded")
SRAM_EVER = Limit("gpu_ecc", "uncorrected_sram_ever", 4, "errors over the board's life")
CORRECTED = Limit("gpu_ecc", "corrected", 20_000_000, "errors since the driver was loaded")


def judge(candidate: Candidate, gpu: Gpu) -> Answer | None:
    uncorrected = gpu.read(Reading.ECC_UNCORRECTED)
    sram_ever = gpu.read(Reading.ECC_UNCORRECTED_SRAM_EVER)
    corrected = gpu.read(Reading.ECC_CORRECTED)
    if uncorrected is None and sram_ever is None and corrected is None:
        return None
    if (uncorrected or 0) > (most := candidate.limit(UNCORRECTED)):
        text = f"{uncorrected} uncorrected errors since the driver was loaded, at most {most:g}"
        if _is_contained(gpu):
            return Outcome.WARN, f"{text}; contained, a row waits for a reset to be remapped"
        return Outcome.FAIL_NODE, text
    if (sram_ever or 0) > (most := candidate.limit(SRAM_EVER)):
        text = f"{sram_ever} uncorrected SRAM errors over its life, at most {most:g}"
        return Outcome.FAIL_NODE, text
    if (corrected or 0) > (most := candidate.limit(CORRECTED)):
        text = f"{corrected} corrected errors since the driver was loaded, at most {most:.12g}"
        return Outcome.WARN, text
    return Outcome.PASS, "no more errors than are usual"


def _is_contained(gpu: Gpu) -> bool:
    numbers = ask(gpu, Reading.ECC_UNCORRECTED_SRAM, Reading.REMAP_PENDING, Reading.REMAP_FAILED)
    if numbers is None:
        return False
    sram, pending, failed = numbers
    return bool(pending) and not sram and not failed


CHECK = Check(
    name="gpu_ecc",
    reads="NVML: ECC errors, corrected and not, volatile and aggregate; whether a row waits",
    threshold="no uncorrected one since the driver was loaded; warns of one whose row waits to be "
    "remapped, and at 20 M corrected",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(UNCORRECTED, SRAM_EVER, CORRECTED),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge, {CORRECTED_ECC: Reading.ECC_CORRECTED}),
    repeated=True,
)
