"""XIDs: what the NVIDIA driver has written into the kernel's log about GPUs.

NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors). Those of
NVLink 5 (144 to 150, 155) name a unit and say whether they are fatal: ``145, RLW_REMAP Nonfatal XC0
i0 Link 10 (...)``. Of those that are not the catalog says IGNORE, or to do what 154 says. 154 tells
each change of the action that a board needs. The driver writes 94 once for each channel that it
ends, and names a part of a board (MIG) as ``PCI:0000:01:00 GPU-I:05``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, Limit, not_judged
from ..kernel_log import KernelLine, read_kernel_log
from ..result import Outcome
from .reading import NVIDIA
from .xid_table import XidKind, XidTable, read_xid_table

HARDWARE = Limit("gpu_xid", "hardware_hours", 24, "hours")
PROGRAM = Limit("gpu_xid", "program_hours", 2, "hours")
_HOUR_S: Final = 3600.0
_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:\d+)?\): (\d+)(.*)")
# Capitals name a unit of the board: a program may be called Nonfatal, too.
_NONFATAL: Final = re.compile(r", [A-Z0-9_/]+ +Nonfatal\b")
_NO_ACTION: Final = re.compile(r"\(None\)\s*$")
_ONE_EVENT_S: Final = 60.0  # in which a contained error ends all channels of its program
_SHOWN_CHARS: Final = 160


@dataclass(frozen=True, slots=True)
class Xid:
    """One line: ``words`` are what follows the number."""

    board: str
    number: int
    words: str
    age_s: float

    @property
    def text(self) -> str:
        said = f"Xid {self.number} on {self.board}, {self.age_s / _HOUR_S:.1f} h ago{self.words}"
        return said[:_SHOWN_CHARS]


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
    """What the lines say against the node (pure); older lines than the limits do not count.

    A board's newest word on its recovery is the one that counts.
    """
    seen = [xid for xid in _xids(lines) if xid.age_s <= hardware_s]
    kinds = {xid.number: table.kind(xid.number) for xid in seen}
    newest = {xid.board: xid for xid in seen if kinds[xid.number] == "recovery"}
    oldest = {xid.board: xid for xid in reversed(seen) if kinds[xid.number] == "contained"}
    bad: list[str] = []
    odd: list[str] = []
    for xid in seen:
        kind = kinds[xid.number]
        if kind == "recovery" and xid is not newest[xid.board]:
            continue
        again = kind == "contained" and oldest[xid.board].age_s - xid.age_s > _ONE_EVENT_S
        if again or _speaks_against(xid, kind):
            bad.append(xid.text)
        elif kind != "information" and (kind != "program" or xid.age_s <= program_s):
            odd.append(xid.text)
    within = f"within {hardware_s / _HOUR_S:g} h, {program_s / _HOUR_S:g} h for programs"
    for outcome, told in ((Outcome.FAIL_NODE, bad), (Outcome.WARN, odd)):
        if told:
            return Finding(outcome, f"{'; '.join(told[-3:])}; {within}", float(len(told)), "XIDs")
    return Finding(Outcome.PASS, f"no XID that counts, by table {table.version}")


def _speaks_against(xid: Xid, kind: XidKind) -> bool:
    if kind == "recovery":
        return not _NO_ACTION.search(xid.words)
    return kind == "hardware" and not _NONFATAL.match(xid.words)


def _xids(lines: Iterable[KernelLine]) -> Iterable[Xid]:
    for line in lines:
        if match := _XID.search(line.text):
            yield Xid(match[1], int(match[2]), match[3], line.age_s)


CHECK = Check(
    name="gpu_xid",
    reads="NVRM lines of /dev/kmsg, by health.xid_table",
    threshold="no hardware XID in 24 h but those called Nonfatal, contained ones at most once; "
    "warns of others in 2 h",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(HARDWARE, PROGRAM),
    typical_s=0.1,
    needs=(NVIDIA,),
    timeout_s=10.0,
    run=check_xid,
    repeated=True,
)
