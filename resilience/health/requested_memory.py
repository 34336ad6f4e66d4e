"""Requested memory: the node still has what Slurm has promised the job.

What other jobs and the system hold may leave less. Whole nodes are asked for by all their memory,
of which the system keeps some, so not everything has to be free.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .check import Candidate, Check, Finding, Limit, not_judged
from .meminfo import read_meminfo
from .result import Outcome

MIB = 1024**2
SHARE = Limit("requested_memory", "share", 0.8, "of what was asked for")


def check_requested_memory(candidate: Candidate) -> Finding:
    asked_bytes = requested_bytes(os.environ)
    if not asked_bytes:
        return not_judged("the job asks for no memory")
    seen = read_meminfo(candidate.root)
    available_bytes, total_bytes = seen["MemAvailable"], seen["MemTotal"]
    if not 0 <= available_bytes <= total_bytes:
        return Finding(Outcome.UNKNOWN, f"the kernel says {available_bytes} bytes are available")
    short = available_bytes < candidate.limit(SHARE) * asked_bytes
    return Finding(
        Outcome.FAIL_NODE if short else Outcome.PASS,
        f"{available_bytes // MIB} MiB available, the job asks for {asked_bytes // MIB}",
        float(available_bytes),
        "bytes",
    )


def requested_bytes(environ: Mapping[str, str]) -> int:
    """What Slurm's variables say, in MiB of the node or of each processor; 0 where they do not."""
    per_node, per_cpu, cpus = (
        int(said) if (said := environ.get(name, "")).isdecimal() else 0
        for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")
    )
    return (per_node or per_cpu * cpus) * MIB


CHECK = Check(
    name="requested_memory",
    reads="MemAvailable of /proc/meminfo; SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU",
    threshold="at least 0.8 of what the job asks of Slurm",
    worst=Outcome.FAIL_NODE,
    limits=(SHARE,),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_requested_memory,
)
