"""Memory: as much is available as the run asks for."""

from __future__ import annotations

from .check import Candidate, Check, Finding
from .result import Outcome

MIB = 1024**2


def check_memory(candidate: Candidate) -> Finding:
    """Compare what the kernel calls available with what was asked."""
    import psutil

    seen = psutil.virtual_memory()
    available_bytes = seen.available
    asked_bytes = candidate.config.health.min_free_memory_bytes
    if not 0 <= available_bytes <= seen.total:
        return Finding(Outcome.UNKNOWN, f"the kernel says {available_bytes} bytes are available")
    short = available_bytes < asked_bytes
    return Finding(
        Outcome.FAIL_NODE if short else Outcome.PASS,
        f"{available_bytes // MIB} MiB available, {asked_bytes // MIB} MiB asked",
        float(available_bytes),
        "bytes",
    )


CHECK = Check(
    name="memory",
    reads="MemAvailable of /proc/meminfo",
    threshold="at least health.min_free_memory",
    worst=Outcome.FAIL_NODE,
    typical_s=0.05,
    timeout_s=5.0,
    run=check_memory,
    repeated=True,
)
