"""Errors of InfiniBand and RoCE ports, as they grow."""

from __future__ import annotations

from pathlib import Path

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit
from .growth import look_twice
from .result import Outcome

GROWTH = Limit("infiniband_errors", "per_second", 10, "errors per second")
COUNTERS = (
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/roce_adp_retrans",
)


def check_infiniband_errors(candidate: Candidate) -> Finding:
    return look_twice(
        lambda: _counters(candidate.root), candidate.limit(GROWTH), "no InfiniBand here"
    )


def _counters(root: Path) -> dict[str, int]:
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    paths = [port / name for port in ports for name in COUNTERS if (port / name).exists()]
    return {f"{p.parents[3].name}/{p.parents[1].name} {p.name}": int(p.read_text()) for p in paths}


CHECK = Check(
    name="infiniband_errors",
    reads="errors in /sys/class/infiniband/*/ports/*/{counters,hw_counters}, twice in 0.3 s",
    threshold="no counter grows by more than 10 a second",
    worst=Outcome.WARN,
    fault=Fault.NETWORK,
    limits=(GROWTH,),
    typical_s=0.4,
    needs=("sys/class/infiniband",),
    timeout_s=10.0,
    run=check_infiniband_errors,
    repeated=True,
)
