"""Shared memory: /dev/shm takes a write, and is not filled by what dead jobs left there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .check import Candidate, Check, Finding, Limit
from .result import Outcome

MIB = 1024**2
SHM = Path("/dev/shm")
FREE = Limit("shm", "free_bytes", 64 * MIB, "bytes")
PROBE_BYTES = 64 * 1024


def check_shm(candidate: Candidate) -> Finding:
    """Write a little, then look at the free space."""
    if not SHM.is_dir():
        return Finding(Outcome.WARN, f"{SHM} does not exist: programs that share memory will fail")
    try:
        with tempfile.TemporaryFile(dir=SHM) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
    except OSError as error:
        return Finding(Outcome.FAIL_NODE, f"cannot write in {SHM}: {error.strerror}")
    space = os.statvfs(SHM)
    free_bytes, least_bytes = space.f_bavail * space.f_frsize, candidate.limit(FREE)
    return Finding(
        Outcome.WARN if free_bytes < least_bytes else Outcome.PASS,
        f"{SHM}: {free_bytes // MIB} MiB free, at least {least_bytes / MIB:.0f} MiB",
        float(free_bytes),
        "bytes",
    )


CHECK = Check(
    name="shm",
    reads="/dev/shm, by a write of 64 KiB",
    threshold="no error; warns below 64 MiB free",
    worst=Outcome.FAIL_NODE,
    limits=(FREE,),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_shm,
)
