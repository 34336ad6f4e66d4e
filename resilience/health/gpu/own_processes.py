"""Which of the processes on a GPU belong to this job: they are not in the way of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def of_this_job(pids: Iterable[int], proc: Path = Path("/proc")) -> int:
    """How many processes have this Slurm job in their environment, which only its user may read."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        return 0
    return sum(_has(proc / str(pid) / "environ", f"SLURM_JOB_ID={job_id}") for pid in pids)


def _has(environ: Path, entry: str) -> bool:
    try:
        return entry.encode() in environ.read_bytes().split(b"\0")
    except OSError:
        return False
