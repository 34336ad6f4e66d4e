"""Disk bandwidth: a write with fsync in the checkpoint directory, which is read back.

All nodes write at once, so a shared filesystem gives each its share; the median takes care of that.
A file lies on one storage target of many, which may be slow for all (Lustre Operations Manual,
"Managing File Layout"): of several files, on as many targets, the fastest counts.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import IO

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..disk import judge_error
from ..result import Outcome

FILE_BYTES = 64 * 1024**2
CHUNK_BYTES = 1024**2
FILES = 3
ENOUGH_S = 8.0  # after so long no other file is begun


def check_disk_rate(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return write_and_read(directory)
    except OSError as error:
        return judge_error(error, f"cannot write in {directory}")


def write_and_read(directory: Path) -> Finding:
    """The fastest of a few files; that one gives back other bytes is a fault. Raises OSError."""
    rates: list[tuple[float, float]] = []
    enough = time.monotonic() + ENOUGH_S
    while not rates or (len(rates) < FILES and time.monotonic() < enough):
        rate = _rates(directory)
        if rate is None:
            text = f"{directory} gave back other bytes than were written"
            return Finding(Outcome.FAIL_NODE, text, fault=Fault.HARDWARE)
        rates.append(rate)
    written, back = max(rates)
    text = f"{written:.0f} MB/s written, {back:.0f} MB/s read in {directory}"
    return Finding(Outcome.PASS, text, written, "MB/s")


def _rates(directory: Path) -> tuple[float, float] | None:
    """Write, fsync, read what the disk has, and drop the file; None where it is not the same."""
    chunk = os.urandom(CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        started = time.perf_counter()
        for _ in range(FILE_BYTES // CHUNK_BYTES):
            file.write(chunk)
        os.fsync(file.fileno())
        written = time.perf_counter()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not from the page cache
        same = _gives_back(file, chunk)
        read = time.perf_counter()
    if not same:
        return None
    return FILE_BYTES / (written - started) / 1e6, FILE_BYTES / (read - written) / 1e6


def _gives_back(file: IO[bytes], chunk: bytes) -> bool:
    file.seek(0)
    return all(file.read(CHUNK_BYTES) == chunk for _ in range(FILE_BYTES // CHUNK_BYTES))


CHECK = Check(
    name="disk_rate",
    reads="three writes of 64 MiB with fsync in the checkpoint directory, read back",
    threshold="the same bytes; warns below 0.3 of the nodes' median rate: the disk is shared",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=3.0,
    timeout_s=30.0,
    run=check_disk_rate,
    of_median=0.3,
    behind=Outcome.WARN,
)
