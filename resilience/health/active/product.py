"""Matrix product on the processor: right to the last bit, and as fast as on the other nodes.

The matrices hold small whole numbers, so that every sum is exact in whatever order it is taken: the
product can be checked without a second one (Freivalds), and any difference is a fault of hardware.
"""

from __future__ import annotations

import time

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..result import Outcome
from .whole_node import shared_node

SIZE = 1024
SECONDS = 1.5
LARGEST = 8  # SIZE * LARGEST**2 is far below 2**53


def check_product(_candidate: Candidate) -> Finding:
    """Multiply for a while; every product is checked."""
    import numpy as np

    random = np.random.default_rng(1)
    left, right = random.integers(-LARGEST, LARGEST, (2, SIZE, SIZE)).astype(np.float64)
    probe = random.integers(-LARGEST, LARGEST, SIZE).astype(np.float64)
    expected = left @ (right @ probe)
    rates: list[float] = []
    end = time.monotonic() + SECONDS
    while not rates or time.monotonic() < end:
        started = time.perf_counter()
        product = left @ right
        rates.append(2 * SIZE**3 / (time.perf_counter() - started) / 1e9)
        if not np.array_equal(product @ probe, expected):
            return Finding(Outcome.FAIL_NODE, "a matrix product is wrong", fault=Fault.HARDWARE)
    best = max(rates)
    text = f"{len(rates)} right products, {best:.0f} GFLOP/s"
    if why := shared_node():
        return Finding(Outcome.PASS, f"{text}; {why}")
    return Finding(Outcome.PASS, text, best, "GFLOP/s")


CHECK = Check(
    name="product",
    reads="matrix products of 1024 x 1024 doubles, for 1.5 s",
    threshold="all exact; at least 0.7 of the nodes' median rate, where the job has the whole node",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=2.0,
    timeout_s=30.0,
    run=check_product,
    of_median=0.7,
)
