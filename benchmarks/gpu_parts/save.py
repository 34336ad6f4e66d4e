"""Saves from GPU memory while steps go on: how long steps stand still, beside a plain copy."""

from __future__ import annotations

import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rows import Row, folder, missing, small, tell

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]

SAVES = 3
WARM_UP = 5
STEP_SIZE = 4096


def main() -> None:
    lacking = missing("torch", "numpy", "h5py")
    if lacking:
        sys.exit(f"no save without {', '.join(lacking)}")
    place = folder() / "saves"
    try:
        tell(measure(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measure(place: Path) -> list[Row]:
    import torch

    from relight.resilience.worker.saving import InBackground, Target
    from relight.resilience.worker.world import World
    from relight.storage.commit import claim_epoch, commit_complete
    from relight.storage.layout import Incarnation, shard_file
    from relight.storage.notes import Notes
    from relight.storage.receipt import Receipt
    from relight.storage.verify import verify_shard

    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    total_bytes = 64 * 1024**2 if small() else 8 * 1024**3 if gpu else 512 * 1024**2
    state = {f"w{n}": torch.rand(total_bytes // 64, device=device) for n in range(16)}
    work = torch.rand(64 if small() else STEP_SIZE, 64 if small() else STEP_SIZE, device=device)

    incarnation = Incarnation("1.0", 0)
    done = threading.Event()

    def wait() -> None:
        if gpu:
            torch.cuda.synchronize()

    def step() -> None:
        work.copy_((work @ work).clamp_(0, 1))
        wait()

    def conclude(write: Callable[[], Receipt]) -> bool:
        write()
        done.set()
        return True

    plain_s, pageable_s = copies(state, gpu, wait)
    saving = InBackground(1 << 40, lambda text: print(text, file=sys.stderr))
    stalls, durable, busy = [], [], []
    try:
        saving.prepare(dict(state))
        saving.settle()
        pinned = gpu and saving._staging.pin(device)
        quiet = statistics.median(timed(step) for _ in range(WARM_UP * 4))
        for number in range(SAVES):
            target = Target(place, number + 1, incarnation, World(), Notes())
            done.clear()
            started = time.perf_counter()
            saving.save(target, dict(state), conclude)
            stalls.append(time.perf_counter() - started)
            while not done.is_set():
                busy.append(timed(step))
            saving.settle()
            durable.append(time.perf_counter() - started)
    finally:
        saving.close()
    gb = total_bytes / 1e9
    commit_complete(place, claim_epoch(place, incarnation))
    sound = verify_shard(place, SAVES, shard_file(incarnation, 0))
    stall_s = statistics.median(stalls)
    return [
        ("state", f"{gb:.2f} GB", str(device)),
        ("copy to pinned memory", f"{plain_s:.3f} s", f"{gb / plain_s:.1f} GB/s, the least"),
        ("copy to plain memory", f"{pageable_s:.3f} s", f"{gb / pageable_s:.1f} GB/s"),
        (
            "steps stand still",
            f"{stall_s:.3f} s",
            f"{stall_s / plain_s:.1f} x pinned, {stall_s / pageable_s:.1f} x plain; {stalls}",
        ),
        ("staging is pinned", "yes" if pinned else "no", "cudaHostRegister of a memfd"),
        ("until durable", f"{statistics.median(durable):.2f} s", "digests of all bytes included"),
        ("a step", f"{quiet * 1e3:.2f} ms", "when nothing is saved"),
        ("a step meanwhile", f"{median_ms(busy)} ms", f"{len(busy)} steps during {SAVES} saves"),
        ("read back", "sound" if sound else "DAMAGED", "every byte by its digest"),
    ]


def copies(state: State, gpu: bool, wait: Callable[[], None]) -> tuple[float, float]:
    """The seconds of a copy to pinned memory, and to plain memory."""
    import torch

    def seconds(copy: State) -> float:
        return best(lambda: (copy_all(state, copy), wait()))

    pinned = {name: torch.empty_like(t, device="cpu", pin_memory=gpu) for name, t in state.items()}
    return seconds(pinned), seconds(
        {n: torch.zeros_like(t, device="cpu") for n, t in state.items()}
    )


def copy_all(state: State, copy: State) -> None:
    for name, tensor in state.items():
        copy[name].copy_(tensor, non_blocking=True)


def best(work: Callable[[], object]) -> float:
    return min(timed(work) for _ in range(3))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.2f}" if seconds else "no"


if __name__ == "__main__":
    main()
