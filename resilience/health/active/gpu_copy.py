"""Copies between host and GPU, from pinned memory, both ways on each GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ledger.faults import Fault
from ..check import Check, Finding
from ..gpu.reading import DRIVERS
from ..result import Outcome
from .boards import finish, on_boards
from .whole_node import shared_node

if TYPE_CHECKING:
    import torch

ARRAY_BYTES = 512 * 1024**2
COPIES = 4


def try_copy(boards: Sequence[torch.device]) -> Finding:
    """The slowest direction of the slowest board."""
    import torch

    pin = all(device.type == "cuda" for device in boards)
    host = torch.empty(ARRAY_BYTES, dtype=torch.uint8, pin_memory=pin)
    rates: dict[str, float] = {}
    for index, device in enumerate(boards):
        board = torch.empty(ARRAY_BYTES, dtype=torch.uint8, device=device)
        for way, (target, source) in {"to": (board, host), "from": (host, board)}.items():
            target.copy_(source)
            finish([device])
            started = time.perf_counter()
            for _ in range(COPIES):
                target.copy_(source, non_blocking=True)
            finish([device])
            seconds = time.perf_counter() - started
            rates[f"{way} GPU {index}"] = COPIES * ARRAY_BYTES / seconds / 1e9
    slowest = min(rates, key=lambda name: rates[name])
    text = f"slowest {slowest}: {rates[slowest]:.1f} GB/s"
    if why := shared_node():
        return Finding(Outcome.PASS, f"{text}; {why}")
    return Finding(Outcome.PASS, text, rates[slowest], "GB/s")


CHECK = Check(
    name="gpu_copy",
    reads="4 copies of 512 MiB pinned memory to and from each GPU, by torch",
    threshold="at least 0.8 of the nodes' median rate, and the published floor, where the job has "
    "the whole node",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=10.0,
    timeout_s=60.0,
    run=on_boards(1, try_copy),
    needs=DRIVERS,
    of_median=0.8,
)
