"""Software: what must be the same on all nodes of a run; it is compared when all have answered."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
    facts["python packages"] = installed(sys.path)
    return Finding(Outcome.PASS, ", ".join(f"{k} {v}" for k, v in facts.items()), facts=facts)


def installed(search: Iterable[str]) -> str:
    """How many packages there are, and a digest of their names and versions."""
    folders = [Path(folder) for folder in search if Path(folder).is_dir()]
    names = sorted({path.name for folder in folders for path in folder.glob("*.dist-info")})
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    return f"{len(names)}, digest {digest}"


CHECK = Check(
    name="software",
    reads="versions of kernel, Python and " + ", ".join(PACKAGES) + "; names of all packages",
    threshold="the same on all nodes; judged where most nodes agree",
    worst=Outcome.WARN,
    typical_s=0.05,
    timeout_s=15.0,
    run=read_software,
)
