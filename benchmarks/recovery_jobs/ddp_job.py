"""One small DDP job, as every contender runs it: the same model, steps and checkpoint interval.

``--save relight`` uses relight's API; ``--save own`` keeps a file of its own, as people write it.
Rank 0 notes the time of each step in ``--trace``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import relight

SAVE_EVERY = 10


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    run = relight.join() if options.save == "relight" else None
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    rank = dist.get_rank()
    if run is not None:
        run.protect(model=model, optimizer=optimizer)
        steps = run.steps(options.steps)
    else:
        steps = own_steps(options, model, optimizer, rank)
    for step in steps:
        began_s = time.monotonic()
        loss = model(torch.randn(32, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own omission
        optimizer.step()
        if rank == 0:
            with options.trace.open("a") as trace:
                trace.write(
                    json.dumps({"time": time.time(), "step": step, "pid": os.getpid()}) + "\n"
                )
        time.sleep(max(0.0, options.step_time - (time.monotonic() - began_s)))


def own_steps(
    options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> Iterator[int]:
    """Steps with a checkpoint of rank 0 every SAVE_EVERY of them."""
    first = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    for step in range(first, options.steps):
        yield step
        if rank == 0 and (step + 1) % SAVE_EVERY == 0:
            temporary = options.checkpoint.with_suffix(".tmp")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, temporary)
            temporary.replace(options.checkpoint)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", choices=["relight", "own"], required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-time", type=float, default=0.1)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
