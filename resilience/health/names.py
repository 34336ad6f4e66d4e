"""Names: this node can look up the nodes that it asks; so each name is looked up by a few nodes."""

from __future__ import annotations

import socket

from relight.counted import counted

from .check import Candidate, Check, Finding
from .peers import ASKED, chosen_peers
from .result import Outcome


def check_names(candidate: Candidate) -> Finding:
    """Sites may give nodes names that only Slurm knows, so an unknown name only warns."""
    names = chosen_peers(candidate.node, candidate.peers) or (candidate.node,)
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
    reads=f"getaddrinfo of the next {ASKED} nodes of the run",
    threshold="all known",
    worst=Outcome.WARN,
    typical_s=0.1,
    timeout_s=15.0,
    run=check_names,
)
