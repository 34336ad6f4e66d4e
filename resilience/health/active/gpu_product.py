"""Matrix product on each GPU: the same bits on all of them, and as fast as on the others.

As on the processor, the numbers are small and whole: sums are exact in fp32, and one rounding to
bf16 follows, so that every board must give the same bits in whatever order it adds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ledger.faults import Fault
from ..check import Check, Finding
from ..gpu.reading import DRIVERS
from ..result import Outcome
from .boards import about, finish, on_boards

if TYPE_CHECKING:
    import torch

PRODUCT = "gpu product"  # the fact that holds a sum over the product's bits
SIZE = 8192
ROUNDS = 40
LARGEST = 2  # SIZE * LARGEST**2 is far below 2**24


def try_product(boards: Sequence[torch.device]) -> Finding:
    """Compare all boards with most of them, and report the slowest."""
    sums, rates = [], []
    for board in boards:
        total, rate = product_on(board, SIZE, ROUNDS)
        sums.append(total)
        rates.append(rate)
    if len(set(sums)) > 1:
        return Finding(Outcome.FAIL_NODE, _difference(sums), fault=Fault.HARDWARE)
    slowest = min(rates)
    text = f"GPU {rates.index(slowest)} is the slowest of {len(rates)}: {slowest:.0f} TFLOP/s"
    facts = {PRODUCT: str(sums[0]), **about(boards)}
    return Finding(Outcome.PASS, text, slowest, "TFLOP/s", facts=facts)


def _difference(sums: Sequence[int]) -> str:
    """Who differs from most; where no majority agrees, nobody can say who is wrong."""
    usual, agreed = Counter(sums).most_common(1)[0]
    if agreed * 2 <= len(sums):
        boards = ", ".join(map(str, range(len(sums))))
        return f"GPU {boards} multiply to different bits, and most agree on none"
    odd = ", ".join(str(index) for index, total in enumerate(sums) if total != usual)
    return f"GPU {odd} multiplies to other bits than the rest"


def product_on(device: torch.device, size: int = SIZE, rounds: int = ROUNDS) -> tuple[int, float]:
    """A weighted sum over the bits of a seeded product, and the rate in TFLOP/s."""
    import torch

    random = torch.Generator().manual_seed(1)
    shape = (2, size, size)
    numbers = torch.randint(-LARGEST, LARGEST + 1, shape, generator=random, dtype=torch.int8)
    left, right = numbers.to(device=device, dtype=torch.bfloat16)
    product = left @ right
    finish([device])
    started = time.perf_counter()
    for _ in range(rounds):
        product = left @ right
    finish([device])
    rate = rounds * 2 * size**3 / (time.perf_counter() - started) / 1e12
    bits = product.view(torch.int16).to(torch.int64)
    weights = torch.arange(1, size + 1, device=device)
    return int((bits * weights).sum()), rate


CHECK = Check(
    name="gpu_product",
    reads="40 seeded bf16 products of 8192 x 8192 on each GPU, by torch",
    threshold="the same bits on all; at least 0.9 of the nodes' median, and the published floor",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=15.0,
    timeout_s=90.0,
    run=on_boards(1, try_product),
    needs=DRIVERS,
    of_median=0.9,
)
