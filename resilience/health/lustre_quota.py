"""Lustre's quotas: those of the user, the group and the directory's project leave room.

``lfs quota -q`` prints one line: the mount point; used KiB, soft limit, hard limit and grace; the
same four for files. 0 is no limit, and a star marks a number over its limit (man lfs-quota).
``lfs project -d`` prints the number of a directory's project, or 0 (man lfs-project).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .check import Candidate, Check, Finding, not_judged
from .lfs import ask_lfs, run_lfs
from .mounts import mount_of
from .result import Outcome

MIB = 1024**2
_WORDS: Final = 9


def check_lustre_quota(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    mount, kind = mount_of(candidate.root, directory)
    if kind != "lustre":
        return not_judged("the checkpoint directory is not on Lustre")
    asked_bytes = candidate.config.health.min_free_disk_bytes
    least = None
    for whose, option, number in _owners(directory):
        said = ask_lfs("quota", "-q", option, str(number), mount)
        if over := over_quota(said):
            return Finding(Outcome.FAIL_JOB, f"{whose} quota on {mount} is used up: {over}")
        left_bytes = quota_left_bytes(said)
        if left_bytes is not None and left_bytes < asked_bytes:
            text = f"{whose} quota on {mount} leaves {left_bytes // MIB} MiB"
            return Finding(Outcome.FAIL_JOB, f"{text}, {asked_bytes // MIB} MiB asked")
        least = min((one for one in (least, left_bytes) if one is not None), default=None)
    text = "no limit" if least is None else f"{least // MIB} MiB left"
    return Finding(Outcome.PASS, f"quota on {mount}: {text}")


def _owners(directory: Path) -> Iterator[tuple[str, str, int]]:
    yield "your", "-u", os.getuid()
    yield "your group's", "-g", os.getgid()
    level = next(level for level in (directory, *directory.parents) if level.exists())
    project = run_lfs("project", "-d", str(level))  # fails where a filesystem has no projects
    number = project.stdout.split()[:1]
    if project.returncode == 0 and number and number[0].isdecimal() and int(number[0]):
        yield "the directory's project's", "-p", int(number[0])


def over_quota(said: str) -> str | None:
    """The line that marks a number as over its limit (pure)."""
    return " ".join(said.split()) if "*" in said else None


def quota_left_bytes(said: str) -> int | None:
    """How much may still be written; None where there is no limit (pure).

    Raises:
        ValueError: it says something else.
    """
    words = said.split()
    if len(words) < _WORDS:
        raise ValueError(f"lfs quota says {said!r:.100}")
    used, soft, hard = (int(word.strip("[]")) for word in words[1:4])
    limit = hard or soft
    return max(limit - used, 0) * 1024 if limit else None


CHECK = Check(
    name="lustre_quota",
    reads="lfs quota (user, group, project), where the checkpoint directory is on Lustre",
    threshold="none used up, at least health.min_free_disk left",
    worst=Outcome.FAIL_JOB,
    typical_s=0.5,
    timeout_s=15.0,
    run=check_lustre_quota,
)
