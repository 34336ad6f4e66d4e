"""Lustre's space: no storage target below the checkpoint directory is full.

One full target fails writes although the filesystem has room. ``lfs df`` prints a line for each
(man lfs-df).
"""

from __future__ import annotations

import re
from pathlib import Path

from .check import Candidate, Check, Finding, Limit, not_judged
from .lfs import ask_lfs
from .mounts import mount_of
from .result import Outcome

USED = Limit("lustre_space", "target_used", 0.95, "of a storage target")
_TARGET = re.compile(r"^(\S+-OST\S*)\s+(?:\d+\s+\d+\s+\d+\s+(\d+)%|:?\s*(inactive))", re.MULTILINE)


def check_lustre_space(candidate: Candidate) -> Finding:
    mount, kind = mount_of(candidate.root, candidate.config.checkpoint.directory)
    if kind != "lustre":
        return not_judged("the checkpoint directory is not on Lustre")
    return judge_targets(ask_lfs("df", mount), candidate.limit(USED), Path(mount))


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


CHECK = Check(
    name="lustre_space",
    reads="lfs df, where the checkpoint directory is on Lustre",
    threshold="no storage target is 95 % full or inactive",
    worst=Outcome.WARN,
    limits=(USED,),
    typical_s=0.5,
    timeout_s=15.0,
    run=check_lustre_space,
)
