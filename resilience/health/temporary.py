"""Temporary directory: programs can write there, and the disk below it is not full."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path

from .check import Candidate, Check, Finding, Limit
from .disk import judge_error
from .result import Outcome

FREE = Limit("temporary", "free_fraction", 0.05, "of the disk", most=1)
PROBE_BYTES = 64 * 1024


def check_temporary(candidate: Candidate) -> Finding:
    """Write a little where programs write theirs, then look at the free space."""
    directory = temporary_directory()
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
        space = os.statvfs(directory)
    except OSError as error:
        return judge_temporary_error(error, f"cannot write in {directory}")
    free = space.f_bavail / space.f_blocks if space.f_blocks else 1.0
    least = candidate.limit(FREE)
    return Finding(
        Outcome.WARN if free < least else Outcome.PASS,
        f"{directory}: {free:.1%} free, at least {least:.1%}",
        free,
        "of the disk",
    )


def temporary_directory() -> Path:
    """Where programs write what they do not keep."""
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def judge_temporary_error(error: OSError, what: str) -> Finding:
    """Whom an error speaks against; never the job, whose program may need no such directory."""
    finding = judge_error(error, what)
    if finding.outcome is Outcome.FAIL_JOB:
        return dataclasses.replace(finding, outcome=Outcome.WARN)
    return finding


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
