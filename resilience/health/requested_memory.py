"""Requested memory: the node still has what Slurm has promised the job.

What other jobs and the system hold may leave less. Whole nodes are asked for by all their memory,
of which the system keeps some, so not everything has to be free. What is relight's own is no fault
of the node: what killed runs have left in the tier goes first, and ranks of this run may hold much.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from relight.counted import counted
from relight.storage.tier_folder import sweep

from .check import Candidate, Check, Finding, Limit, not_judged
from .meminfo import read_meminfo
from .result import Outcome

MIB = 1024**2
SHARE = Limit("requested_memory", "share", 0.8, "of what was asked for", most=1)


def check_requested_memory(candidate: Candidate) -> Finding:
    asked_bytes = requested_bytes(os.environ)
    if not asked_bytes:
        return not_judged("the job asks for no memory")
    least_bytes = candidate.limit(SHARE) * asked_bytes
    available_bytes = available(candidate.root)
    if available_bytes is not None and available_bytes < least_bytes:
        if ranks := ranks_of(candidate.config.run_id, candidate.root):
            return not_judged(f"{counted(ranks, 'process')} of this run's ranks are there")
        if candidate.config.checkpoint.tier is not None:
            sweep(Path(candidate.config.checkpoint.tier))
            available_bytes = available(candidate.root)
    if available_bytes is None:
        return Finding(Outcome.UNKNOWN, "the kernel says that more is available than there is")
    return Finding(
        Outcome.FAIL_NODE if available_bytes < least_bytes else Outcome.PASS,
        f"{available_bytes // MIB} MiB available, at least {candidate.limit(SHARE):g} of the "
        f"{asked_bytes // MIB} MiB that the job asks for",
        float(available_bytes),
        "bytes",
    )


def available(root: Path) -> int | None:
    """Bytes that the kernel could give now; None where it says nonsense."""
    seen = read_meminfo(root)
    return seen["MemAvailable"] if 0 <= seen["MemAvailable"] <= seen["MemTotal"] else None


def ranks_of(run_id: str, root: Path) -> int:
    """How many processes have a rank of the run in their environment."""
    count = 0
    for environ in (root / "proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            entries = environ.read_bytes().split(b"\0")
            ours = f"RELIGHT_RUN_ID={run_id}".encode() in entries
            count += ours and any(entry.startswith(b"RELIGHT_GENERATION=") for entry in entries)
    return count


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
    threshold="at least 0.8 of what the job asks of Slurm, once the tier is swept",
    worst=Outcome.FAIL_NODE,
    limits=(SHARE,),
    typical_s=0.01,
    timeout_s=15.0,
    run=check_requested_memory,
)
