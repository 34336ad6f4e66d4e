"""Whether the job has the node to itself: a rate says little of a node that others make work, too.

SLURM_CPUS_ON_NODE (man sbatch) counts cores, or their threads, as the site has told Slurm (man
slurm.conf, CPUs). Some cores may be kept for the system (CoreSpecCount), so that a tenth may lack.
"""

from __future__ import annotations

import os
from typing import Final

ENOUGH: Final = 0.9  # of the node's processors


def shared_node() -> str | None:
    """Why rates of this node are not compared; None where the job has it to itself."""
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if not given.isdecimal():
        return None
    import psutil  # a node without it can still be asked everything else

    threads = psutil.cpu_count() or 1
    cores = psutil.cpu_count(logical=False) or threads
    return judge_share(int(given), len(os.sched_getaffinity(0)), cores, threads)


def judge_share(given: int, allowed: int, cores: int, threads: int) -> str | None:
    """Whether ``given`` CPUs, on ``allowed`` threads, are nearly all of the node's (pure)."""
    counts_cores = given <= cores and allowed > given
    there = cores if counts_cores else threads
    if given >= ENOUGH * there:
        return None
    return f"not compared: the job has {given} of {there} CPUs, others may use the rest"
