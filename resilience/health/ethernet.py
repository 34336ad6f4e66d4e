"""Ethernet: the ports that are up make no errors, and are like those of the other nodes.

Files: Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit
from .growth import look_twice
from .result import Outcome

GROWTH = Limit("ethernet", "per_second", 10, "errors per second")
COUNTERS = ("rx_errors", "tx_errors")
ETHERNET = "1"  # ARPHRD_ETHER


def check_ethernet(candidate: Candidate) -> Finding:
    ports = _ports(candidate.root)
    kinds = sorted({f"{_text(port / 'speed')} Mb/s, MTU {_text(port / 'mtu')}" for port in ports})
    finding = look_twice(
        lambda: {f"{port.name} {name}": _count(port, name) for port in ports for name in COUNTERS},
        candidate.limit(GROWTH),
        "no Ethernet port is up",
    )
    facts = {"ethernet ports": f"{len(ports)} up, {'; '.join(kinds)}"} if ports else {}
    return dataclasses.replace(finding, facts=facts)


def _ports(root: Path) -> list[Path]:
    """Ports of real hardware that have a link."""
    return [
        port
        for port in sorted((root / "sys/class/net").glob("*"))
        if (port / "device").exists()
        and _text(port / "type") == ETHERNET
        and _text(port / "operstate") == "up"
    ]


def _count(port: Path, name: str) -> int:
    return int((port / "statistics" / name).read_text())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"  # a virtual port has no speed


CHECK = Check(
    name="ethernet",
    reads="/sys/class/net/*: type, operstate, speed, mtu; rx_errors and tx_errors twice in 0.3 s",
    threshold="no counter grows by more than 10 a second; the same ports on all nodes",
    worst=Outcome.WARN,
    fault=Fault.NETWORK,
    limits=(GROWTH,),
    typical_s=0.4,
    timeout_s=10.0,
    run=check_ethernet,
    repeated=True,
)
