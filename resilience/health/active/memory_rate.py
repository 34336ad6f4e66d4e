"""Memory bandwidth: copies of arrays that fit no cache."""

from __future__ import annotations

import time

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..result import Outcome
from .whole_node import shared_node

ARRAY_BYTES = 128 * 1024**2
COPIES = 8


def check_memory_rate(_candidate: Candidate) -> Finding:
    """Copy several times and keep the best: the first copies pay for fresh pages."""
    import numpy as np

    source = np.arange(ARRAY_BYTES // 8, dtype=np.int64)
    target = np.zeros_like(source)
    best = 0.0
    for _ in range(COPIES):
        started = time.perf_counter()
        np.copyto(target, source)
        # Each byte is read once and written once.
        best = max(best, 2 * ARRAY_BYTES / (time.perf_counter() - started) / 1e9)
    if not np.array_equal(source, target):
        return Finding(Outcome.FAIL_NODE, "a copy in memory is wrong", fault=Fault.HARDWARE)
    if why := shared_node():
        return Finding(Outcome.PASS, f"{best:.1f} GB/s; {why}")
    return Finding(Outcome.PASS, f"{best:.1f} GB/s", best, "GB/s")


CHECK = Check(
    name="memory_rate",
    reads="8 copies of 128 MiB",
    threshold="the copy is right; at least 0.7 of the nodes' median rate, where the job has the "
    "whole node",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=1.0,
    timeout_s=30.0,
    run=check_memory_rate,
    of_median=0.7,
)
