"""One save and restore, measured, and the same for the limits of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpoint_contenders import Raw


@dataclass(frozen=True, slots=True)
class Measured:
    """One save or restore."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """One contender in one round."""

    save: Measured
    restore: Measured
    stored_bytes: int


Rounds = dict[str, list[Result]]


def measured(work: Callable[[], object]) -> Measured:
    started_s, cpu_s = time.monotonic(), time.process_time()
    work()
    return Measured(time.monotonic() - started_s, time.process_time() - cpu_s)


def drop_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_raw(folder: Path, raw: Raw) -> Iterator[tuple[str, Result]]:
    file = folder / "raw"
    save = measured(lambda: raw.write(file))
    reads = []
    for direct, threads in ((True, 8), (False, 4)):
        drop_cache(folder)
        reads.append(measured(lambda d=direct, t=threads: raw.read(file, d, t)))  # type: ignore[misc]
    yield "raw", Result(save, min(reads, key=lambda one: one.seconds), raw.size_bytes)
    copy = measured(raw.copy)
    yield "memcpy", Result(copy, copy, raw.size_bytes)
