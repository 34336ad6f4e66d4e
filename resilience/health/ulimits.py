"""Limits of this job's processes: open files, stack, locked memory where there is InfiniBand."""

from __future__ import annotations

import resource

from .check import Candidate, Check, Finding, Limit
from .result import Outcome

KIB = 1024
FILES = Limit("ulimits", "open_files", 4096, "files, hard limit")
STACK = Limit("ulimits", "stack_bytes", 8 * 1024**2, "bytes, soft limit")
LOCKED = Limit("ulimits", "locked_bytes", 16 * 1024**3, "bytes, hard limit")


def check_ulimits(candidate: Candidate) -> Finding:
    """RDMA pins its buffers: with little locked memory it fails in the middle of a run."""
    faults = []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if resource.RLIM_INFINITY != files < candidate.limit(FILES):
        least = f"at least {candidate.limit(FILES):g}"
        faults.append(f"only {files} open files, {least} (ulimit -n)")
    stack_bytes = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if resource.RLIM_INFINITY != stack_bytes < candidate.limit(STACK):
        least = f"at least {candidate.limit(STACK) / KIB:.0f}"
        faults.append(f"only {stack_bytes / KIB:.0f} KiB of stack, {least} (ulimit -s)")
    locked_bytes = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    rdma = any((candidate.root / "sys/class/infiniband").glob("*"))
    if rdma and resource.RLIM_INFINITY != locked_bytes < candidate.limit(LOCKED):
        least = f"at least {candidate.limit(LOCKED) / KIB:.0f}"
        faults.append(f"only {locked_bytes / KIB:.0f} KiB of locked memory, {least} (ulimit -l)")
    return Finding(Outcome.WARN if faults else Outcome.PASS, "; ".join(faults) or "wide enough")


CHECK = Check(
    name="ulimits",
    reads="RLIMIT_NOFILE, RLIMIT_STACK, RLIMIT_MEMLOCK",
    threshold="4096 open files, 8 MiB of stack; 16 GiB locked where there is InfiniBand",
    worst=Outcome.WARN,
    limits=(FILES, STACK, LOCKED),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_ulimits,
)
