"""Copies between the GPUs of a node, each to its neighbour, over NVLink where there is one."""

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

ARRAY_BYTES = 1024**3
COPIES = 8


def try_peers(boards: Sequence[torch.device]) -> Finding:
    """The slowest of all neighbours; a byte that arrives as another one is a fault."""
    import torch

    rates: dict[str, float] = {}
    for index, board in enumerate(boards):
        there = (index + 1) % len(boards)
        source = torch.arange(ARRAY_BYTES // 8, dtype=torch.int64, device=board)
        target = torch.empty(ARRAY_BYTES // 8, dtype=torch.int64, device=boards[there])
        target.copy_(source)
        finish(boards)
        started = time.perf_counter()
        for _ in range(COPIES):
            target.copy_(source, non_blocking=True)
        finish(boards)
        rate = COPIES * ARRAY_BYTES / (time.perf_counter() - started) / 1e9
        rates[f"GPU {index} to GPU {there}"] = rate
        if not torch.equal(source, target.to(board)):
            text = f"a copy from GPU {index} to GPU {there} is wrong"
            return Finding(Outcome.FAIL_NODE, text, fault=Fault.HARDWARE)
    slowest = min(rates, key=lambda way: rates[way])
    return Finding(
        Outcome.PASS, f"slowest {slowest}: {rates[slowest]:.0f} GB/s", rates[slowest], "GB/s"
    )


CHECK = Check(
    name="gpu_peers",
    reads="8 copies of 1 GiB from each GPU to the next, by torch",
    threshold="the copy is right; at least 0.8 of the nodes' median rate, and the published floor",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=8.0,
    timeout_s=60.0,
    run=on_boards(2, try_peers),
    needs=DRIVERS,
    of_median=0.8,
)
