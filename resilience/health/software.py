"""Software: what must be the same on all nodes of a run; it is compared when all have answered."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from .check import Candidate, Check, Finding
from .result import Outcome

PACKAGES = ("relight", "torch", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "mpi4py")


def read_software(_candidate: Candidate) -> Finding:
    """Versions from the packages' metadata: importing torch would take seconds."""
    facts = {"kernel": platform.release(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return Finding(Outcome.PASS, ", ".join(f"{k} {v}" for k, v in facts.items()), facts=facts)


CHECK = Check(
    name="software",
    reads="versions of kernel, Python and " + ", ".join(PACKAGES),
    threshold="the same on all nodes; judged where most nodes agree",
    worst=Outcome.WARN,
    typical_s=0.05,
    timeout_s=15.0,
    run=read_software,
)
