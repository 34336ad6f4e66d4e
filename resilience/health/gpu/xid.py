"""XIDs: what the NVIDIA driver has written into the kernel's log about GPUs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, Limit, not_judged
from ..kernel_log import KernelLine, read_kernel_log
from ..result import Outcome
from .reading import NVIDIA
from .xid_table import XidTable, read_xid_table

HARDWARE = Limit("gpu_xid", "hardware_hours", 24, "hours")
PROGRAM = Limit("gpu_xid", "program_hours", 2, "hours")
_HOUR_S: Final = 3600.0
_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(.*)")
_NO_ACTION: Final = re.compile(r"\(None\)\s*$")
_SHOWN_CHARS: Final = 160


def check_xid(candidate: Candidate) -> Finding:
    """Judge the newest XIDs by the table."""
    try:
        lines = read_kernel_log(candidate.root)
    except OSError as error:
        return not_judged(f"the kernel's log: {error.strerror}")
    table = read_xid_table(candidate.config.health.xid_table)
    hardware_s = candidate.limit(HARDWARE) * _HOUR_S
    return judge_xids(lines, table, hardware_s, candidate.limit(PROGRAM) * _HOUR_S)


def judge_xids(
    lines: list[KernelLine], table: XidTable, hardware_s: float, program_s: float
) -> Finding:
    """What the lines say against the node (pure); older lines than the limits do not count."""
    bad: list[str] = []
    odd: list[str] = []
    contained: Counter[str] = Counter()
    for line in lines:
        match = _XID.search(line.text)
        if match is None or line.age_s > hardware_s:
            continue
        board, xid, rest = match[1], int(match[2]), match[3]
        kind = table.kind(xid)
        text = f"Xid {xid} on {board}, {line.age_s / _HOUR_S:.1f} h ago{rest}"[:_SHOWN_CHARS]
        contained[board] += kind == "contained"
        if kind == "hardware" or (kind == "contained" and contained[board] > 1):
            bad.append(text)
        elif kind == "recovery":
            (odd if _NO_ACTION.search(rest) else bad).append(text)
        elif kind in ("contained", "unknown") or (kind == "program" and line.age_s <= program_s):
            odd.append(text)
    if bad:
        return Finding(Outcome.FAIL_NODE, "; ".join(bad[-3:]), float(len(bad)), "XIDs")
    if odd:
        return Finding(Outcome.WARN, "; ".join(odd[-3:]), float(len(odd)), "XIDs")
    return Finding(Outcome.PASS, f"no XID that counts, by table {table.version}")


CHECK = Check(
    name="gpu_xid",
    reads="NVRM lines of /dev/kmsg, by health.xid_table",
    threshold="no hardware XID in 24 h, contained ones at most once; warns of others in 2 h",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(HARDWARE, PROGRAM),
    typical_s=0.1,
    needs=(NVIDIA,),
    timeout_s=10.0,
    run=check_xid,
    repeated=True,
)
