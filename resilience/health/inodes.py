"""Inodes: the filesystems that a run writes to can hold more files."""

from __future__ import annotations

import os
from pathlib import Path

from relight.counted import counted

from .check import Candidate, Check, Finding, Limit, not_judged
from .result import Outcome
from .shm import SHM
from .temporary import temporary_directory

FREE = Limit("inodes", "free", 1000, "files")


def check_inodes(candidate: Candidate) -> Finding:
    """Not every program needs the temporary directories: there it only warns."""
    directory = candidate.config.checkpoint.directory
    level = next(level for level in (directory, *directory.parents) if level.exists())
    free = {
        one: files
        for one in (level, temporary_directory(), SHM)
        if (files := _free(one)) is not None
    }
    least = candidate.limit(FREE)
    low = {one: files for one, files in free.items() if files < least}
    if not free:
        return not_judged(f"{level} counts no inodes")
    seen = ", ".join(
        f"{one} has room for {counted(files, 'file')}" for one, files in (low or free).items()
    )
    text = f"{seen}; at least {least:g}"
    outcome = Outcome.FAIL_NODE if level in low else Outcome.WARN if low else Outcome.PASS
    return Finding(outcome, text, float(min(free.values())), "files")


def _free(directory: Path) -> int | None:
    """How many more files there may be; None where nobody counts them."""
    if not directory.is_dir():
        return None
    space = os.statvfs(directory)
    return space.f_favail if space.f_files else None


CHECK = Check(
    name="inodes",
    reads="statvfs of the checkpoint directory, of TMPDIR or /tmp, and of /dev/shm",
    threshold="1000 free; warns of the temporary ones",
    worst=Outcome.FAIL_NODE,
    limits=(FREE,),
    typical_s=0.01,
    timeout_s=15.0,
    run=check_inodes,
)
