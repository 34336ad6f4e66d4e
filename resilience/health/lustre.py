"""Lustre client: it calls itself healthy (Lustre Operations Manual, "Monitoring the client")."""

from __future__ import annotations

from .check import Candidate, Check, Finding, not_judged
from .mounts import mount_points
from .result import Outcome

HEALTH_FILES = ("sys/fs/lustre/health_check", "proc/fs/lustre/health_check")


def check_lustre(candidate: Candidate) -> Finding:
    if "lustre" not in mount_points(candidate.root).values():
        return not_judged("no Lustre is mounted")
    for name in HEALTH_FILES:
        path = candidate.root / name
        if path.exists():
            said = path.read_text().strip()
            return Finding(_outcome(said), f"{name}: {' '.join(said.split())[:200]}")
    return Finding(Outcome.UNKNOWN, f"Lustre is mounted, and {HEALTH_FILES[0]} is not there")


def _outcome(said: str) -> Outcome:
    """What stands in the file; "NOT HEALTHY" names the devices on further lines."""
    if said == "healthy":
        return Outcome.PASS
    bad = "NOT HEALTHY" in said.upper() or "LBUG" in said
    return Outcome.FAIL_NODE if bad else Outcome.UNKNOWN


CHECK = Check(
    name="lustre",
    reads="/sys/fs/lustre/health_check, where Lustre is mounted",
    threshold="healthy",
    worst=Outcome.FAIL_NODE,
    silence=Outcome.FAIL_NODE,
    typical_s=0.05,
    timeout_s=15.0,
    run=check_lustre,
)
