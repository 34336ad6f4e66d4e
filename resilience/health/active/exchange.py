"""One node's side of an all-reduce between two: the program of a pair.

``python -m relight.resilience.health.active.exchange OUT_DIR FIRST SECOND``, on both nodes. It
goes over NCCL where torch sees GPUs, else over Gloo; the two meet by a file in OUT_DIR. When all
sums are right, the first writes its rate in GB/s to ``OUT_DIR/<first>+<second>``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from relight.storage.durable import publish

from ..preflight import node_name

NUMBERS = 8 * 1024**2  # of 4 bytes
ROUNDS = 5


def main(arguments: Sequence[str]) -> str | None:
    """Take part; gives the reason when a sum is wrong, and nothing otherwise."""
    out_dir, *pair = arguments
    rate = exchange(Path(out_dir), pair, pair.index(node_name()))
    if rate is None:
        return f"exchange: a sum between {' and '.join(pair)} is wrong"
    if pair[0] == node_name():
        publish(result_file(Path(out_dir), pair), f"{rate}\n".encode())
    return None


def exchange(out_dir: Path, pair: Sequence[str], rank: int) -> float | None:
    """The rate of a ring all-reduce in GB/s (bytes of the array per second); None when wrong."""
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    meeting = f"file://{out_dir}/.{'+'.join(pair)}.store"
    dist.init_process_group("nccl" if gpu else "gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        best = 0.0
        for _ in range(ROUNDS):
            numbers = torch.full((NUMBERS,), rank + 1.0, device=device)
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(numbers)
            if not bool((numbers == 3.0).all()):  # 1 + 2; the comparison waits for the GPU
                return None
            best = max(best, NUMBERS * 4 / (time.perf_counter() - started) / 1e9)
        return best
    finally:
        dist.destroy_process_group()


def result_file(out_dir: Path, pair: Sequence[str]) -> Path:
    return out_dir / "+".join(pair)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
