"""Disk bandwidth: a write with fsync in the checkpoint directory, which is read back.

All nodes write at once, so a shared filesystem gives each its share; the median takes care of that.
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


def check_disk_rate(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return write_and_read(directory)
    except OSError as error:
        return judge_error(error, f"cannot write in {directory}")


def write_and_read(directory: Path) -> Finding:
    """Write, fsync, read what the disk has, and drop the file. Raises OSError."""
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
        text = f"{directory} gave back other bytes than were written"
        return Finding(Outcome.FAIL_NODE, text, fault=Fault.HARDWARE)
    rate, back = (FILE_BYTES / s / 1e6 for s in (written - started, read - written))
    text = f"{rate:.0f} MB/s written, {back:.0f} MB/s read in {directory}"
    return Finding(Outcome.PASS, text, rate, "MB/s")


def _gives_back(file: IO[bytes], chunk: bytes) -> bool:
    file.seek(0)
    return all(file.read(CHUNK_BYTES) == chunk for _ in range(FILE_BYTES // CHUNK_BYTES))


CHECK = Check(
    name="disk_rate",
    reads="a write of 64 MiB with fsync in the checkpoint directory, read back",
    threshold="the same bytes; written at 0.3 of the nodes' median rate or more",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=1.0,
    timeout_s=30.0,
    run=check_disk_rate,
    of_median=0.3,
)
