"""All-reduce over the GPUs of a node, by NCCL from one process.

The rate is the bus bandwidth of nccl-tests (PERFORMANCE.md): what each GPU has to send, whatever
their number.
"""

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

NUMBERS = 256 * 1024**2  # of 4 bytes
ROUNDS = 10


def try_sum(boards: Sequence[torch.device]) -> Finding:
    """The rate of all together; a sum that is not whole is a fault."""
    import torch

    count = len(boards)
    parts = [torch.full((NUMBERS,), index + 1.0, device=b) for index, b in enumerate(boards)]
    sums = [torch.zeros_like(part) for part in parts]
    all_reduce(parts, sums)
    finish(boards)
    started = time.perf_counter()
    for _ in range(ROUNDS):
        all_reduce(parts, sums)
    finish(boards)
    rate = ROUNDS * NUMBERS * 4 / (time.perf_counter() - started) / 1e9
    expected = count * (count + 1) / 2
    wrong = [index for index, total in enumerate(sums) if not bool((total == expected).all())]
    if wrong:
        text = f"the sum of all GPUs is wrong on GPU {', '.join(map(str, wrong))}"
        return Finding(Outcome.FAIL_NODE, text, fault=Fault.HARDWARE)
    bus_rate = rate * 2 * (count - 1) / count
    text = f"all-reduce over {count} GPUs: {bus_rate:.0f} GB/s (bus bandwidth)"
    return Finding(Outcome.PASS, text, bus_rate, "GB/s")


def all_reduce(parts: Sequence[torch.Tensor], sums: Sequence[torch.Tensor]) -> None:
    import torch.cuda.nccl

    torch.cuda.nccl.all_reduce(parts, sums)  # type: ignore[no-untyped-call]


CHECK = Check(
    name="gpu_sum",
    reads="10 all-reduces of 1 GiB over the node's GPUs, by NCCL",
    threshold="the sum is right; at least 0.8 of the nodes' median rate, and the published floor",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=12.0,
    timeout_s=90.0,
    run=on_boards(2, try_sum),
    needs=DRIVERS,
    of_median=0.8,
)
