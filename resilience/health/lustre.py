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
            # "NOT HEALTHY" names the devices on further lines.
            outcome = Outcome.PASS if said == "healthy" else Outcome.FAIL_NODE
            return Finding(outcome, f"{name}: {' '.join(said.split())[:200]}")
    return Finding(Outcome.UNKNOWN, f"Lustre is mounted, and {HEALTH_FILES[0]} is not there")


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
