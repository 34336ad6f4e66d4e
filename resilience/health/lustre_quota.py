"""Lustre's quotas: those of the user, the group and the directory's project leave room.

``lfs quota -q`` prints one line: the mount point; used KiB, soft limit, hard limit and grace; the
same four for files. 0 is no limit, and a star marks a number over one (man lfs-quota; print_quota
in Lustre's lustre/utils/lfs.c). What grace says tells which: ``-`` is the hard limit, ``none`` the
soft one whose time has passed, and a time the soft one until then: writes still go on (Lustre
Operations Manual, "Configuring and Managing Quotas"). A directory with the setgid bit gives its
group to what is written in it (man 7 inode). ``lfs project -d`` prints the number of a directory's
project, or 0 (man lfs-project).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .check import Candidate, Check, Finding, not_judged
from .lfs import ask_lfs, run_lfs
from .mounts import mount_of
from .result import Outcome

MIB = 1024**2
_WORDS: Final = 9
_ENDED: Final = ("-", "none")  # what grace says where no more may be written


@dataclass(frozen=True, slots=True)
class Quota:
    """``used_up``: nothing more may be written. ``left_bytes``: until that, None without a limit.
    ``grace``: the time that is left over a soft limit, for bytes or files."""

    used_up: bool
    grace: str | None
    left_bytes: int | None


def check_lustre_quota(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    mount, kind = mount_of(candidate.root, directory)
    if kind != "lustre":
        return not_judged("the checkpoint directory is not on Lustre")
    asked_bytes = candidate.config.health.min_free_disk_bytes
    least = None
    passing = []
    for whose, option, number in _owners(directory):
        said = ask_lfs("quota", "-q", option, str(number), mount)
        quota = read_quota(said)
        if quota.used_up:
            text = f"{whose} quota on {mount} is used up: {' '.join(said.split())}"
            return Finding(Outcome.FAIL_JOB, text)
        if quota.left_bytes is not None and quota.left_bytes < asked_bytes:
            text = f"{whose} quota on {mount} leaves {quota.left_bytes // MIB} MiB"
            return Finding(Outcome.FAIL_JOB, f"{text}, {asked_bytes // MIB} MiB asked")
        if quota.grace is not None:
            passing.append(
                f"{whose} quota on {mount} is over its soft limit, for {quota.grace} more"
            )
        least = min((one for one in (least, quota.left_bytes) if one is not None), default=None)
    if passing:
        return Finding(Outcome.WARN, "; ".join(passing))
    text = "no limit" if least is None else f"{least // MIB} MiB left"
    return Finding(Outcome.PASS, f"quota on {mount}: {text}")


def _owners(directory: Path) -> Iterator[tuple[str, str, int]]:
    yield "your", "-u", os.getuid()
    level = next(level for level in (directory, *directory.parents) if level.exists())
    there = level.stat()
    if there.st_mode & stat.S_ISGID:
        yield "the directory's group's", "-g", there.st_gid
    else:
        yield "your group's", "-g", os.getgid()
    project = run_lfs("project", "-d", str(level))  # fails where a filesystem has no projects
    number = project.stdout.split()[:1]
    if project.returncode == 0 and number and number[0].isdecimal() and int(number[0]):
        yield "the directory's project's", "-p", int(number[0])


def read_quota(said: str) -> Quota:
    """What ``lfs quota -q`` says (pure).

    Raises:
        ValueError: it says something else.
    """
    words = said.split()
    if len(words) < _WORDS:
        raise ValueError(f"lfs quota says {said!r:.100}")
    over = [words[at + 3] for at in (1, 5) if "*" in words[at]]
    used, _soft, hard = (int(word.strip("[]*")) for word in words[1:4])
    return Quota(
        used_up=any(grace in _ENDED for grace in over),
        grace=next((grace for grace in over if grace not in _ENDED), None),
        left_bytes=max(hard - used, 0) * 1024 if hard else None,
    )


CHECK = Check(
    name="lustre_quota",
    reads="lfs quota (user, group, project), where the checkpoint directory is on Lustre",
    threshold="none used up, at least health.min_free_disk left; warns of a grace period that runs",
    worst=Outcome.FAIL_JOB,
    typical_s=0.5,
    timeout_s=15.0,
    run=check_lustre_quota,
)
