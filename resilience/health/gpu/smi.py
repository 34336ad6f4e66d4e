"""nvidia-smi: the tool answers, and finds no board in trouble.

It needs no Python package, and its exit codes name what NVML calls unknown (man nvidia-smi). ``-L``
lists a board in a line, and each of its parts (MIG), which Slurm counts as GPUs, in another one.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, not_judged
from ..result import Outcome
from .present import asked_gpus
from .reading import NVIDIA

_BAD: Final = {
    8: "a power cable is missing",
    9: "the driver is not loaded",
    10: "interrupts of a GPU do not arrive",
    14: "the infoROM of a GPU is corrupt",
    15: "a GPU has fallen off the bus",
}
_LOST: Final = "Unable to determine the device handle"
# What NVML calls its errors 4 and 17: the board belongs to another job.
_NOT_OURS: Final = ("Insufficient Permissions", "blocked by the operating system")
_NONE: Final = "No devices were found"


def check_smi(candidate: Candidate) -> Finding:
    if shutil.which("nvidia-smi") is None:
        return not_judged("nvidia-smi is not installed")
    done = subprocess.run(
        ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    return judge_smi(done.returncode, said, asked_gpus(candidate))


def judge_smi(code: int, said: str, asked: int) -> Finding:
    """What the exit code and the lines mean where so many GPUs are asked for (pure)."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lost = [line for line in lines if _LOST in line and not any(why in line for why in _NOT_OURS)]
    if code in _BAD:
        return Finding(Outcome.FAIL_NODE, f"{_BAD[code]}: {' | '.join(lines[-3:])}")
    if lost:
        return Finding(Outcome.FAIL_NODE, "; ".join(lost[:3]))
    boards = sum(line.startswith("GPU ") for line in lines)
    split = any(line.startswith("MIG ") for line in lines)
    if (boards or _NONE in said) and boards < asked and not split:
        text = f"{boards} GPUs listed, {asked} asked"
        return Finding(Outcome.FAIL_NODE, text, float(boards), "GPUs")
    if code != 0 or not boards:
        last = " | ".join(lines[-3:])
        return Finding(Outcome.UNKNOWN, f"nvidia-smi exited with {code}: {last or 'no words'}")
    return Finding(Outcome.PASS, f"{boards} GPUs listed", float(boards), "GPUs")


CHECK = Check(
    name="gpu_smi",
    reads="nvidia-smi -L, where it is installed; SLURM_GPUS_ON_NODE, resources.gpus_per_node",
    threshold="it answers within 25 s and lists all GPUs asked for; exit codes 8, 9, 10, 14, 15 "
    "and lost boards are faults",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    silence=Outcome.FAIL_NODE,
    typical_s=2.0,
    timeout_s=25.0,
    needs=(NVIDIA,),
    run=check_smi,
)
