"""GPU memory bandwidth: copies inside each board, of arrays that fit no cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ledger.faults import Fault
from ..check import Check, Finding
from ..gpu.reading import DRIVERS
from ..result import Outcome
from .boards import finish, on_boards

if TYPE_CHECKING:
    import torch

ARRAY_BYTES = 4 * 1024**3
COPIES = 10


def try_memory(boards: Sequence[torch.device]) -> Finding:
    """The slowest board; a byte that arrives as another one is a fault."""
    import torch

    rates = []
    for index, board in enumerate(boards):
        source = torch.arange(ARRAY_BYTES // 8, dtype=torch.int64, device=board)
        target = torch.empty_like(source)
        target.copy_(source)
        finish([board])
        started = time.perf_counter()
        for _ in range(COPIES):
            target.copy_(source)
        finish([board])
        # Each byte is read once and written once.
        rates.append(2 * COPIES * ARRAY_BYTES / (time.perf_counter() - started) / 1e9)
        if not torch.equal(source, target):
            text = f"a copy in the memory of GPU {index} is wrong"
            return Finding(Outcome.FAIL_NODE, text, fault=Fault.HARDWARE)
    slowest = min(rates)
    text = f"GPU {rates.index(slowest)} is the slowest of {len(rates)}: {slowest:.0f} GB/s"
    return Finding(Outcome.PASS, text, slowest, "GB/s")


CHECK = Check(
    name="gpu_memory",
    reads="10 copies of 4 GiB inside each GPU, by torch",
    threshold="the copy is right; at least 0.9 of the nodes' median rate, and the published floor",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=8.0,
    timeout_s=60.0,
    run=on_boards(1, try_memory),
    needs=DRIVERS,
    of_median=0.9,
)
