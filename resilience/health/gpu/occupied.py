"""Occupied GPUs: memory or processes that another job has left behind.

A driver needs some memory itself: nearly a GiB with MIG or confidential computing, else much less.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping

from relight.counted import counted

from ..check import Candidate, Check, Finding, Limit
from ..result import Outcome
from .each import Answer, ask, on_each_gpu
from .reading import DRIVERS, Gpu, Reading

MIB = 1024**2
MEMORY = Limit("gpu_occupied", "memory_bytes", 1024**3, "bytes in use before ranks start")
PATIENCE_S = 5.0  # what a job that has just ended may take to give all its memory back
_POLL_S = 0.5


def check_occupied(candidate: Candidate) -> Finding:
    """Boards are given back at the same time: one patience is for all of them together."""
    deadline = time.monotonic() + PATIENCE_S
    return on_each_gpu(functools.partial(_judge, deadline))(candidate)


def _judge(deadline: float, candidate: Candidate, gpu: Gpu) -> Answer | None:
    if not is_given(gpu.name, os.environ):
        return None
    if own := gpu.read(Reading.OWN_PROCESSES):
        return Outcome.PASS, f"{counted(own, 'process')} of this job"
    while True:
        memory_bytes = gpu.read(Reading.MEMORY_USED)
        if memory_bytes is None:
            return None
        numbers = ask(gpu, Reading.PROCESSES)
        processes = 0 if numbers is None else numbers[0]
        most_bytes = candidate.limit(MEMORY)
        memory = f"{memory_bytes // MIB} MiB in use, at most {most_bytes / MIB:.0f}"
        text = f"{memory}; {counted(processes, 'process')}, none of another job"
        if memory_bytes <= most_bytes and not processes:
            return Outcome.PASS, text
        if time.monotonic() >= deadline:
            return Outcome.FAIL_NODE, text
        time.sleep(_POLL_S)


def is_given(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the scheduler has given this GPU to the job, as far as it numbers what it gives.

    Where it hides the others, the numbers begin with 0, as those of the GPUs that are seen do.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES") or environ.get("ROCR_VISIBLE_DEVICES") or ""
    numbers = listed.split(",")
    if not all(number.isdecimal() for number in numbers):
        return True
    return name in {f"GPU {number}" for number in numbers}


CHECK = Check(
    name="gpu_occupied",
    reads="NVML: memory and processes on this job's GPUs; for 5 s in all: another may be ending",
    threshold="at most 1 GiB and no process of another job",
    worst=Outcome.FAIL_NODE,
    limits=(MEMORY,),
    typical_s=1.0,
    needs=DRIVERS,
    timeout_s=25.0,
    run=check_occupied,
)
