"""Mounts: the filesystems that the run needs are mounted, and answer."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .check import Candidate, Check, Finding, not_judged
from .result import Outcome

ANSWER_S: Final = 12.0  # of the check's time, so that it can tell which did not answer
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # white space, and the backslash itself


def check_mounts(candidate: Candidate) -> Finding:
    """Look each up in the kernel's list, and ask it for its size: a dead server is silent."""
    # Two slashes at the beginning are one, which normpath does not say.
    wanted = tuple(f"/{os.path.normpath(p).lstrip('/')}" for p in candidate.config.health.mounts)
    if not wanted:
        return not_judged("health.mounts names none")
    mounted = mount_points(candidate.root)
    missing = [path for path in wanted if path not in mounted]
    faults, notes = [f"not mounted: {', '.join(missing)}"] if missing else [], []
    for path, answer in _ask([path for path in wanted if path in mounted]).items():
        if isinstance(answer, PermissionError):
            notes.append(f"{path} is mounted, and not open to this user")
        elif answer is not None:
            faults.append(f"{path} does not answer: {answer.strerror}")
    if faults or notes:
        return Finding(Outcome.FAIL_NODE if faults else Outcome.WARN, "; ".join([*faults, *notes]))
    return Finding(Outcome.PASS, f"{', '.join(wanted)} answer")


def _ask(paths: Sequence[str]) -> dict[str, OSError | None]:
    """Each path's error, None where there is none; a thread that hangs ends with the process."""
    silent = TimeoutError(errno.ETIMEDOUT, f"nothing in {ANSWER_S:g} s")
    answers: dict[str, OSError | None] = dict.fromkeys(paths, silent)

    def ask(path: str) -> None:
        try:
            os.statvfs(path)
        except OSError as error:
            answers[path] = error
        else:
            answers[path] = None

    threads = [threading.Thread(target=ask, args=(path,), daemon=True) for path in paths]
    deadline = time.monotonic() + ANSWER_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def mount_points(root: Path) -> dict[str, str]:
    """Mount point to the type of its filesystem; spaces are written as \\040 (man 5 fstab)."""
    lines = os.fsdecode((root / "proc/self/mounts").read_bytes()).splitlines()
    fields = [line.split() for line in lines]
    return {_ESCAPED.sub(_character, words[1]): words[2] for words in fields if len(words) > 2}


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8))


def mount_of(root: Path, directory: Path) -> tuple[str, str]:
    """The mount point and type of the filesystem that holds a directory; links are followed.

    Raises:
        OSError: there is no list of mounts.
    """
    mounted = mount_points(root)
    there = directory.resolve()
    for level in (there, *there.parents):
        if str(level) in mounted:
            return str(level), mounted[str(level)]
    return "/", "unknown"


CHECK = Check(
    name="mounts",
    reads="/proc/self/mounts, and statvfs of each of health.mounts",
    threshold="all mounted, and all answer within 12 s",
    worst=Outcome.FAIL_NODE,
    silence=Outcome.FAIL_NODE,
    typical_s=0.05,
    timeout_s=15.0,
    run=check_mounts,
)
