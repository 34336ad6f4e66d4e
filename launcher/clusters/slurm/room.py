"""Waits for room in the queue, where a site limits how many jobs a user may have there."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Final

from relight.errors import RelightError

from .client import SlurmClient, me

LOOK_S: Final = 30.0  # between two tries: each is a call that Slurm has to answer
# Of the user's own jobs: MaxSubmitJobs of an association, MaxSubmitJobsPerUser of a QOS (20.11 to
# 26.05). Of a group's jobs it is not for this user to wait.
_FULL: Final = re.compile(r"\b\w*MaxSubmitJob\w*Limit\b")


def full_queue(answer: str) -> str | None:
    """The limit in sbatch's refusal that jobs of the user's have reached; None for all others."""
    match = _FULL.search(answer)
    return match[0] if match else None


def wait_for_room(limit: str, look_s: float, *, first: bool) -> bool:
    """Waits a while, since some job of the user's may end; False when none is in the queue beside
    the one that we are in, so that this one is more than may be. ``first``: it is told, once."""
    own = _own_job(os.environ)
    try:
        waits = any(job.job_id != own for job in SlurmClient().jobs_of(me()))
    except RelightError:
        waits = True  # Slurm has heard sbatch, and may be busy
    if not waits:
        return False
    if first:
        sys.stderr.write(
            f"relight: you have as many jobs in the queue as you may ({limit}): this one is sent "
            "when one of them has ended; Ctrl-C sends nothing\n"
        )
    time.sleep(look_s)
    return True


def _own_job(env: Mapping[str, str]) -> str | None:
    """The job that this process is in, as squeue names it; it never ends while we wait."""
    task = env.get("SLURM_ARRAY_TASK_ID")
    return env.get("SLURM_JOB_ID") if task is None else f"{env['SLURM_ARRAY_JOB_ID']}_{task}"
