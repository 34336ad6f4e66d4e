"""Faults of a job on the mini cluster; each gives back what repairs the cluster afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from contenders import Trial

Repair = Callable[[], None]


def kill_rank(trial: Trial) -> Repair:
    """SIGKILL to the process of a rank other than 0."""
    os.kill(_rank_1(trial), signal.SIGKILL)
    return lambda: None


def stop_rank(trial: Trial) -> Repair:
    """A rank that hangs, for ever: nothing ends, and nothing says so."""
    os.kill(_rank_1(trial), signal.SIGSTOP)
    return lambda: None


def _rank_1(trial: Trial) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_rank_1(entry, trial):
            return int(entry.name)
    raise AssertionError("rank 1 does not run")


def _is_rank_1(entry: Path, trial: Trial) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        environment = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended while we looked
    if b"submitit.core._submit" in words:  # it runs the job itself, and sets RANK while it runs
        return str(trial.folder / "submitit").encode() in words and b"SLURM_PROCID=1" in environment
    return str(trial.trace).encode() in words and b"RANK=1" in environment and b"-c" not in words


def lose_host(trial: Trial) -> Repair:
    """Power loss of the second host: it is not the batch host, and carries ranks where a spare is
    there, too."""
    nodes = trial.site.user("squeue", "-h", "-t", "R", "-o", "%N").strip()
    assert nodes, "no job runs"
    names = trial.site.user("scontrol", "show", "hostnames", nodes).split()
    trial.site.node("kill", names[1])
    return lambda: trial.site.node("start", names[1])


def preempt(trial: Trial) -> Repair:
    """A job of one second takes all nodes."""
    trial.site.preempt(seconds=1)
    return lambda: None


FAULTS: dict[str, Callable[[Trial], Repair]] = {
    "SIGKILL of a rank": kill_rank,
    "loss of a host": lose_host,
    "preemption": preempt,
    "hang of a rank": stop_rank,
}
