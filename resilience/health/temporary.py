"""Temporary directory: programs can write there, and the disk below it is not full."""

from __future__ import annotations

import dataclasses
import os
import tempfile

from .check import Candidate, Check, Finding, Limit
from .disk import judge_error
from .result import Outcome

FREE = Limit("temporary", "free_fraction", 0.05, "of the disk")
PROBE_BYTES = 64 * 1024


def check_temporary(candidate: Candidate) -> Finding:
    """Write a little where programs write theirs, then look at the free space."""
    directory = os.environ.get("TMPDIR") or tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
        space = os.statvfs(directory)
    except OSError as error:
        finding = judge_error(error, f"cannot write in {directory}")
        if finding.outcome is Outcome.FAIL_JOB:  # the program may need no such directory
            return dataclasses.replace(finding, outcome=Outcome.WARN)
        return finding
    free = space.f_bavail / space.f_blocks if space.f_blocks else 1.0
    return Finding(
        Outcome.WARN if free < candidate.limit(FREE) else Outcome.PASS,
        f"{directory}: {free:.0%} free",
        free,
        "of the disk",
    )


CHECK = Check(
    name="temporary",
    reads="TMPDIR or /tmp, by a write of 64 KiB and fsync",
    threshold="no error; warns below 5 % free",
    worst=Outcome.FAIL_NODE,
    limits=(FREE,),
    typical_s=0.05,
    timeout_s=15.0,
    run=check_temporary,
)
