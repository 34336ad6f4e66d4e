"""Peers: other nodes of the run answer over the network.

Each node asks a few others, by a connection to a port where nobody listens: a refusal is an answer.
Who is cut off, the asker or the asked, is judged when all have reported.
"""

from __future__ import annotations

import socket
from typing import Final

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, not_judged
from .result import Outcome

PORT: Final = 61_000  # MPI and NCCL need ports like this one open between nodes
ASKED: Final = 3
PATIENCE_S: Final = 3.0
REACHED, UNREACHED = "peers reached", "peers not reached"  # facts: names, separated by spaces


def check_peers(candidate: Candidate) -> Finding:
    """Ask the next nodes in the run's order, so that each node is asked by as many."""
    reached: list[str] = []
    silent: list[str] = []
    for peer in chosen_peers(candidate.node, candidate.peers):
        try:
            address = socket.getaddrinfo(peer, PORT, type=socket.SOCK_STREAM)[0][4]
        except OSError:
            continue  # the check of names tells
        (reached if _answers(str(address[0])) else silent).append(peer)
    if not reached and not silent:
        return not_judged("there is no other node to ask")
    text = f"{len(reached)} answered"
    if silent:
        text = f"{', '.join(silent)} gave no answer within {PATIENCE_S:g} s"
    facts = {REACHED: " ".join(reached), UNREACHED: " ".join(silent)}
    return Finding(Outcome.WARN if silent else Outcome.PASS, text, facts=facts)


def chosen_peers(node: str, peers: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes that one asks."""
    if node not in peers:
        return ()
    position = peers.index(node)
    after = (*peers[position + 1 :], *peers[:position])
    return after[:ASKED]


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), PATIENCE_S).close()
    except ConnectionError:
        return True  # refused or reset: somebody is there
    except OSError:
        return False
    return True


CHECK = Check(
    name="peers",
    reads=f"connections to port {PORT} of the next {ASKED} nodes of the run",
    threshold="each answers or refuses within 3 s",
    worst=Outcome.WARN,
    fault=Fault.NETWORK,
    typical_s=0.1,
    timeout_s=15.0,
    run=check_peers,
)
