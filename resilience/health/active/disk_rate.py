"""Disk bandwidth: a write with fsync in the checkpoint directory.

All nodes write at once, so a shared filesystem gives each its share; the median takes care of that.
"""

from __future__ import annotations

import os
import tempfile
import time

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding
from ..disk import judge_error
from ..result import Outcome

FILE_BYTES = 64 * 1024**2


def check_disk_rate(candidate: Candidate) -> Finding:
    """Write, fsync, and drop the file."""
    directory = candidate.config.checkpoint.directory
    content = os.urandom(1024**2) * (FILE_BYTES // 1024**2)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            started = time.perf_counter()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            seconds = time.perf_counter() - started
    except OSError as error:
        return judge_error(error, f"cannot write in {directory}")
    rate = FILE_BYTES / seconds / 1e6
    return Finding(Outcome.PASS, f"{rate:.0f} MB/s in {directory}", rate, "MB/s")


CHECK = Check(
    name="disk_rate",
    reads="a write of 64 MiB with fsync in the checkpoint directory",
    threshold="at least 0.3 of the nodes' median rate",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=1.0,
    timeout_s=30.0,
    run=check_disk_rate,
    of_median=0.3,
)
