"""Inodes: the checkpoint directory's filesystem can hold more files."""

from __future__ import annotations

import os

from .check import Candidate, Check, Finding, Limit, not_judged
from .result import Outcome

FREE = Limit("inodes", "free", 1000, "files")


def check_inodes(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    level = next(level for level in (directory, *directory.parents) if level.exists())
    space = os.statvfs(level)
    if space.f_files == 0:
        return not_judged(f"{level} counts no inodes")
    low = space.f_favail < candidate.limit(FREE)
    text = f"{level} has room for {space.f_favail} files"
    return Finding(Outcome.FAIL_NODE if low else Outcome.PASS, text, float(space.f_favail), "files")


CHECK = Check(
    name="inodes",
    reads="statvfs of the checkpoint directory",
    threshold="1000 free",
    worst=Outcome.FAIL_NODE,
    limits=(FREE,),
    typical_s=0.01,
    timeout_s=15.0,
    run=check_inodes,
)
