"""Room: the disks that a run fills as it goes, in its checkpoint and temporary directories."""

from __future__ import annotations

import os

from .check import Candidate, Check, Finding, Limit
from .result import Outcome
from .temporary import temporary_directory

FREE = Limit("room", "free_fraction", 0.05, "of the disk", most=1)
MIB = 1024**2


def check_room(candidate: Candidate) -> Finding:
    """Look at the free space, and write nothing: this is repeated while ranks run."""
    asked_bytes = candidate.config.health.min_free_disk_bytes
    enough = candidate.limit(FREE)
    low, least = [], 1.0
    for directory in (candidate.config.checkpoint.directory, temporary_directory()):
        level = next(level for level in (directory, *directory.parents) if level.exists())
        space = os.statvfs(level)
        free = space.f_bavail / space.f_blocks if space.f_blocks else 1.0
        free_bytes = space.f_bavail * space.f_frsize
        least = min(least, free)
        if free < enough or free_bytes < asked_bytes:
            low.append(f"{level}: {free:.1%} free, {free_bytes // MIB} MiB")
    asked = f"at least {enough:.1%} and {asked_bytes // MIB} MiB"
    text = f"{', '.join(low)}; {asked}" if low else f"{least:.1%} free; {asked}"
    return Finding(Outcome.WARN if low else Outcome.PASS, text, least, "of the disk")


CHECK = Check(
    name="room",
    reads="statvfs of the checkpoint directory and of TMPDIR or /tmp",
    threshold="warns below 5 % free, or health.min_free_disk",
    worst=Outcome.WARN,
    limits=(FREE,),
    typical_s=0.01,
    timeout_s=15.0,
    run=check_room,
    repeated=True,
)
