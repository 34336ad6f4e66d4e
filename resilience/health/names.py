"""Names: this node can look up every node of the run."""

from __future__ import annotations

import socket

from relight.counted import counted

from .check import Candidate, Check, Finding
from .result import Outcome


def check_names(candidate: Candidate) -> Finding:
    """Sites may give nodes names that only Slurm knows, so an unknown name only warns."""
    names = candidate.peers or (candidate.node,)
    unknown = []
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            unknown.append(f"{name} ({error.strerror})")
    if unknown:
        text = f"{len(unknown)} of {counted(len(names), 'name')} unknown: {', '.join(unknown[:3])}"
        return Finding(Outcome.WARN, text, float(len(unknown)), "names")
    return Finding(Outcome.PASS, f"{counted(len(names), 'name')} known")


CHECK = Check(
    name="names",
    reads="getaddrinfo of every node of the run",
    threshold="all known",
    worst=Outcome.WARN,
    typical_s=0.1,
    timeout_s=15.0,
    run=check_names,
)
