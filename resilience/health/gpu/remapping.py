"""Row remapping (A100 and later): spare memory rows that have taken the place of bad ones.

NVIDIA, "GPU Memory Error Management": a failed remap is a case for replacement; a pending one lets
work go on until the next reset. 512 is the most that a board can remap.
"""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Limit
from ..result import Outcome
from ..trends import REMAPPED_ROWS
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

UNCORRECTED = Limit("gpu_remapping", "uncorrected", 512, "rows")


def judge(candidate: Candidate, gpu: Gpu) -> Answer | None:
    numbers = ask(gpu, Reading.REMAP_FAILED, Reading.REMAP_PENDING, Reading.REMAP_UNCORRECTED)
    if numbers is None:
        return None
    failed, pending, uncorrected = numbers
    if failed:
        return Outcome.FAIL_NODE, "a row could not be remapped: the board is due for replacement"
    if uncorrected > (most := candidate.limit(UNCORRECTED)):
        text = f"{uncorrected} rows remapped after uncorrected errors, at most {most:g}"
        return Outcome.FAIL_NODE, text
    if pending:
        return Outcome.WARN, "a row waits for a reset of the GPU to be remapped"
    return Outcome.PASS, f"{uncorrected} rows remapped after uncorrected errors"


CHECK = Check(
    name="gpu_remapping",
    reads="NVML: remapped rows",
    threshold="no failure, at most 512 rows; warns while one is pending",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(UNCORRECTED,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=20.0,
    run=on_each_gpu(judge, {REMAPPED_ROWS: Reading.REMAP_UNCORRECTED}),
    repeated=True,
)
