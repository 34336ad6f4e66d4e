"""Copies between host and GPU, from pinned memory, both ways on each GPU."""

from __future__ import annotations

import time

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, not_judged
from ..gpu.reading import DRIVER
from ..result import Outcome

ARRAY_BYTES = 512 * 1024**2
COPIES = 4


def check_gpu_copy(_candidate: Candidate) -> Finding:
    """The slowest direction of the slowest board."""
    try:
        import torch
    except ImportError:
        return not_judged("torch is not installed")
    if not torch.cuda.is_available():
        return not_judged("torch sees no GPU")
    host = torch.empty(ARRAY_BYTES, dtype=torch.uint8, pin_memory=True)
    rates: dict[str, float] = {}
    for index in range(torch.cuda.device_count()):
        board = torch.empty(ARRAY_BYTES, dtype=torch.uint8, device=f"cuda:{index}")
        for way, (target, source) in {"to": (board, host), "from": (host, board)}.items():
            target.copy_(source)
            torch.cuda.synchronize(index)
            started = time.perf_counter()
            for _ in range(COPIES):
                target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(index)
            seconds = time.perf_counter() - started
            rates[f"{way} GPU {index}"] = COPIES * ARRAY_BYTES / seconds / 1e9
    slowest = min(rates, key=lambda name: rates[name])
    text = f"slowest {slowest}: {rates[slowest]:.1f} GB/s"
    return Finding(Outcome.PASS, text, rates[slowest], "GB/s")


CHECK = Check(
    name="gpu_copy",
    reads="4 copies of 512 MiB pinned memory to and from each GPU, by torch",
    threshold="at least 0.8 of the nodes' median rate",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=10.0,
    timeout_s=60.0,
    run=check_gpu_copy,
    needs=DRIVER,
    of_median=0.8,
)
