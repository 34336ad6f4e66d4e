"""A save while training goes on: relight, torch's DCP in the background, and torch.save.

``.venv/bin/python benchmarks/async_save.py [--mib 1024] [--rounds 5] [--directory D]``

In one run, contenders in turn: how long the program stands still (over one thread's memcpy of the
state into memory that is there), how long until the state is durable (over pwrite of the same bytes
by O_DIRECT from four threads, and fsync), processor seconds per GB, and how much longer a step of
one thread's matrix products takes meanwhile. Medians of the rounds. Overlapped, only the call is
counted: an optimizer that makes its step before the copy is done waits for the rest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from relight.resilience.worker.saving import InBackground, Target
from relight.resilience.worker.world import World
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.page_memory import in_huge_pages
from relight.storage.receipt import Receipt

State = dict[str, torch.Tensor]
Save = Callable[[Path, State], Callable[[], None]]  # returns how to wait until it is durable
MIB = 1024**2


def main() -> None:
    options = parse_options()
    print("\n".join(tables(options.directory, options.rounds, quick=False, mib=options.mib)))


def tables(directory: Path, rounds: int, quick: bool, mib: int = 1024) -> list[str]:
    """A line on the limits, and a table."""
    mib = 64 if quick else mib
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )  # DCP's background saves want one
    state = {f"w{n}": torch.rand(mib * MIB // 64) for n in range(16)}
    folder = directory / f"async-save-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        with relight(state) as save, relight(state, overlap=True) as overlapped:
            contenders = {"relight": save, "relight, overlapped": overlapped}
            contenders |= {"DCP thread": dcp_thread, "DCP process": dcp_process}
            contenders["torch.save"] = torch_save
            return list(report(measure(contenders, state, folder, rounds), mib))
    finally:
        shutil.rmtree(folder)
        dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the state")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path.cwd() / "build")
    return parser.parse_args()


Figures = dict[str, dict[str, list[float]]]  # contender → figure → one value per round


def measure(contenders: dict[str, Save], state: State, folder: Path, rounds: int) -> Figures:
    figures: Figures = defaultdict(lambda: defaultdict(list))
    copy = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    for number in range(rounds):
        figures["limits"]["memcpy"].append(seconds(lambda: copy_state(state, copy)))
        figures["limits"]["pwrite"].append(seconds(lambda: write_raw(state, folder / "raw")))
        figures["no save"]["step"] += [seconds(train_one_step) for _ in range(100)]
        for name, save in contenders.items():
            place = folder / f"{name}-{number}".replace(" ", "-")
            one_save(save, place, state, figures[name])
            shutil.rmtree(place)
    return figures


def one_save(save: Save, place: Path, state: State, figures: dict[str, list[float]]) -> None:
    place.mkdir()
    for tensor in state.values():
        tensor.add_(1)
    cpu_s, began_s = cpu_seconds(), time.monotonic()
    wait = save(place, state)
    figures["stall"].append(time.monotonic() - began_s)
    with ThreadPoolExecutor(1) as pool:
        durable = pool.submit(lambda: (wait(), time.monotonic())[1])
        before_s = training_cpu_seconds()
        while not durable.done():
            figures["step"].append(seconds(train_one_step))
        steps_cpu_s = training_cpu_seconds() - before_s
    figures["durable"].append(durable.result() - began_s)
    figures["cpu"].append(cpu_seconds() - cpu_s - steps_cpu_s)


def report(figures: Figures, mib: int) -> Iterator[str]:
    limits = {name: statistics.median(values) for name, values in figures.pop("limits").items()}
    alone_s, gb = statistics.median(figures["no save"]["step"]), mib * MIB / 1e9
    yield f"memcpy {gb / limits['memcpy']:.2f} GB/s, pwrite {gb / limits['pwrite']:.2f} GB/s"
    yield ""
    yield "| | first stall | stall / memcpy | pwrite / durable | CPU s/GB | step p50 | step p99 |"
    yield "|---|---|---|---|---|---|---|"
    for name, one in figures.items():
        cells = [name, *(saves(one, limits, gb) if one["stall"] else 4 * ["-"])]
        steps = sorted(value / alone_s for value in one["step"])
        cells += [f"{steps[int(len(steps) * part)]:.2f}" if steps else "-" for part in (0.5, 0.99)]
        yield f"| {' | '.join(cells)} |"


def saves(one: dict[str, list[float]], limits: dict[str, float], gb: float) -> list[str]:
    first, *stalls = (value / limits["memcpy"] for value in one["stall"])
    durable = limits["pwrite"] / statistics.median(one["durable"])
    cpu = statistics.median(one["cpu"]) / gb
    return [f"{value:.2f}" for value in (first, statistics.median(stalls), durable, cpu)]


# The contenders


@contextmanager
def relight(state: State, *, overlap: bool = False) -> Iterator[Save]:
    saving = InBackground(1 << 40, lambda text: print(text, file=sys.stderr), overlap=overlap)
    # Those of an optimizer that has made a step; without gradients that changes nothing.
    parameters = [torch.nn.Parameter(tensor, requires_grad=False) for tensor in state.values()]
    optimizer = torch.optim.SGD(parameters)
    optimizer.step()
    saving.prepare(dict(state))  # as `steps` does after the first step
    saving.settle()

    def save(place: Path, state: State) -> Callable[[], None]:
        target = Target(place, 1, Incarnation("1.0", 0), World(), Notes())
        saving.save(target, dict(state), conclude)
        return wait

    def conclude(write: Callable[[], Receipt]) -> bool:
        write()
        return True

    def wait() -> None:
        if not saving.settle():
            raise SystemExit("the save failed")

    yield save
    saving.close()


def dcp_thread(place: Path, state: State) -> Callable[[], None]:
    return dcp_save(place, state, AsyncCheckpointerType.THREAD)


def dcp_process(place: Path, state: State) -> Callable[[], None]:
    return dcp_save(place, state, AsyncCheckpointerType.PROCESS)


def dcp_save(place: Path, state: State, kind: AsyncCheckpointerType) -> Callable[[], None]:
    found = dcp.async_save(
        dict(state),
        storage_writer=dcp.FileSystemWriter(place, thread_count=4, sync_files=True),
        async_checkpointer_type=kind,
    )
    if not isinstance(found, Future):
        raise TypeError(f"DCP returned a {type(found).__name__}")
    return lambda: found.result() and None


def torch_save(place: Path, state: State) -> Callable[[], None]:
    with (place / "state.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return lambda: None


# The limits, and the training


def copy_state(state: State, copy: State) -> None:
    for name, tensor in state.items():
        copy[name].copy_(tensor)


def write_raw(state: State, path: Path) -> None:
    """The same number of bytes, from memory that is aligned already."""
    size_bytes, block_bytes = sum(tensor.nbytes for tensor in state.values()), 8 * MIB
    block = in_huge_pages(block_bytes)
    block[:] = os.urandom(MIB) * 8
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    os.posix_fallocate(fd, 0, size_bytes)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: os.pwrite(fd, block, at), range(0, size_bytes, block_bytes)))
    os.fsync(fd)
    os.close(fd)
    path.unlink()


MATRIX = np.random.default_rng(1).random((384, 384))


def train_one_step() -> None:
    matrix = MATRIX
    for _ in range(4):
        matrix = np.tanh(matrix @ MATRIX)


def seconds(work: Callable[[], None]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


TRAINING = {one.id for one in psutil.Process().threads()}  # this one, and those of numpy's BLAS


def training_cpu_seconds() -> float:
    """Of the threads that do the steps."""
    threads = psutil.Process().threads()
    return sum(one.user_time + one.system_time for one in threads if one.id in TRAINING)


def cpu_seconds() -> float:
    """Of this process and all below it; a child that has ended counts in its parent."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in processes)


if __name__ == "__main__":
    main()
