"""Mounts: the filesystems that the run needs are mounted, and answer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from .check import Candidate, Check, Finding, not_judged
from .result import Outcome

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # white space, and the backslash itself


def check_mounts(candidate: Candidate) -> Finding:
    """Look each up in the kernel's list, and ask it for its size: a dead server is silent."""
    wanted = candidate.config.health.mounts
    if not wanted:
        return not_judged("health.mounts names none")
    mounted = mount_points(candidate.root)
    if missing := [path for path in wanted if path not in mounted]:
        return Finding(Outcome.FAIL_NODE, f"not mounted: {', '.join(missing)}")
    for path in wanted:
        try:
            os.statvfs(path)
        except PermissionError:
            return Finding(Outcome.WARN, f"{path} is mounted, and not open to this user")
        except OSError as error:
            return Finding(Outcome.FAIL_NODE, f"{path} does not answer: {error.strerror}")
    return Finding(Outcome.PASS, f"{', '.join(wanted)} answer")


def mount_points(root: Path) -> dict[str, str]:
    """Mount point to the type of its filesystem; spaces are written as \\040 (man 5 fstab)."""
    lines = os.fsdecode((root / "proc/self/mounts").read_bytes()).splitlines()
    fields = [line.split() for line in lines]
    return {_ESCAPED.sub(_character, words[1]): words[2] for words in fields if len(words) > 2}


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8))


def mount_of(root: Path, directory: Path) -> tuple[str, str]:
    """The mount point and type of the filesystem that holds a directory.

    Raises:
        OSError: there is no list of mounts.
    """
    mounted = mount_points(root)
    for level in (directory, *directory.parents):
        if str(level) in mounted:
            return str(level), mounted[str(level)]
    return "/", "unknown"


CHECK = Check(
    name="mounts",
    reads="/proc/self/mounts, and statvfs of each of health.mounts",
    threshold="all mounted, and all answer within 15 s",
    worst=Outcome.FAIL_NODE,
    silence=Outcome.FAIL_NODE,
    typical_s=0.05,
    timeout_s=15.0,
    run=check_mounts,
)
