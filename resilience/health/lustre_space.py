"""Lustre's space: no storage target below the checkpoint directory is full.

One full target fails writes although the filesystem has room. ``lfs df`` prints a line for each
(man lfs-df; showdf in Lustre's lustre/utils/lfs.c): its numbers, or after a colon why there are
none, as ``inactive device`` or ``Resource temporarily unavailable``. A name that is not known is
written as ``OST0001``. It fails when one of the targets did, and has told of the others all the
same.
"""

from __future__ import annotations

import re
from pathlib import Path

from .check import Candidate, Check, Finding, Limit, not_judged
from .lfs import run_lfs
from .mounts import mount_of
from .result import Outcome

USED = Limit("lustre_space", "target_used", 0.95, "of a storage target", most=1)
_TARGET = re.compile(
    r"^((?:\S+-)?OST[0-9a-f]{4}[^\s:]*)"
    r"[ \t]*(?:[ \t]\d+[ \t]+\d+[ \t]+\d+[ \t]+(\d+)%|:[ \t]*(.+))",
    re.MULTILINE,
)


def check_lustre_space(candidate: Candidate) -> Finding:
    mount, kind = mount_of(candidate.root, candidate.config.checkpoint.directory)
    if kind != "lustre":
        return not_judged("the checkpoint directory is not on Lustre")
    return judge_targets(run_lfs("df", mount).stdout, candidate.limit(USED), Path(mount))


def judge_targets(said: str, most: float, mount: Path) -> Finding:
    """What ``lfs df`` says (pure)."""
    targets = {name: (used, why) for name, used, why in _TARGET.findall(said)}
    if not targets:
        return Finding(Outcome.UNKNOWN, f"lfs df names no storage target of {mount}")
    full = [
        f"{name}: {why.strip()}" if why else f"{name} is {used} % full, the limit is {most:.0%}"
        for name, (used, why) in targets.items()
        if why or int(used) >= most * 100
    ]
    if full:
        return Finding(Outcome.WARN, "; ".join(full[:5]), float(len(full)), "targets")
    return Finding(Outcome.PASS, f"{len(targets)} storage targets of {mount} have room")


CHECK = Check(
    name="lustre_space",
    reads="lfs df, where the checkpoint directory is on Lustre",
    threshold="no storage target is 95 % full, inactive or without an answer",
    worst=Outcome.WARN,
    limits=(USED,),
    typical_s=0.5,
    timeout_s=15.0,
    run=check_lustre_space,
)
