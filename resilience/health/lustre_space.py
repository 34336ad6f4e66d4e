"""Lustre's space: no storage target below the checkpoint directory is full, no quota is used up.

One full target fails writes although the filesystem has room. ``lfs df`` prints a line for each; in
that of ``lfs quota -q`` a star marks a number over its limit (man lfs-df, lfs-quota).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .check import Candidate, Check, Finding, Limit, not_judged
from .mounts import mount_of
from .result import Outcome

USED = Limit("lustre_space", "target_used", 0.95, "of a storage target")
_TARGET = re.compile(r"^(\S+-OST\S*)\s+(?:\d+\s+\d+\s+\d+\s+(\d+)%|:?\s*(inactive))", re.MULTILINE)


def check_lustre_space(candidate: Candidate) -> Finding:
    mount, kind = mount_of(candidate.root, candidate.config.checkpoint.directory)
    if kind != "lustre":
        return not_judged("the checkpoint directory is not on Lustre")
    if shutil.which("lfs") is None:
        return Finding(Outcome.UNKNOWN, "the command lfs is not here")
    for whose, option, number in (("your", "-u", os.getuid()), ("your group's", "-g", os.getgid())):
        if over := over_quota(_lfs("quota", "-q", option, str(number), mount)):
            return Finding(Outcome.FAIL_JOB, f"{whose} quota on {mount} is used up: {over}")
    return judge_targets(_lfs("df", mount), candidate.limit(USED), Path(mount))


def judge_targets(said: str, most: float, mount: Path) -> Finding:
    """What ``lfs df`` says (pure)."""
    targets = {name: (used, inactive) for name, used, inactive in _TARGET.findall(said)}
    if not targets:
        return Finding(Outcome.UNKNOWN, f"lfs df names no storage target of {mount}")
    full = [
        f"{name} {'is inactive' if inactive else f'is {used} % full'}"
        for name, (used, inactive) in targets.items()
        if inactive or int(used) >= most * 100
    ]
    if full:
        return Finding(Outcome.WARN, "; ".join(full[:5]), float(len(full)), "targets")
    return Finding(Outcome.PASS, f"{len(targets)} storage targets of {mount} have room")


def over_quota(said: str) -> str | None:
    """The line of ``lfs quota -q`` that marks a number as over its limit (pure)."""
    return next((" ".join(line.split()) for line in said.splitlines() if "*" in line), None)


def _lfs(*arguments: str) -> str:
    done = subprocess.run(["lfs", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"lfs {arguments[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


CHECK = Check(
    name="lustre_space",
    reads="lfs df and lfs quota (user and group), where the checkpoint directory is on Lustre",
    threshold="quota not used up; warns when a storage target is 95 % full or inactive",
    worst=Outcome.FAIL_JOB,
    limits=(USED,),
    typical_s=0.5,
    timeout_s=15.0,
    run=check_lustre_space,
)
