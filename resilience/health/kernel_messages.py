"""Kernel messages: what the kernel itself complained of lately, other than GPUs.

Words of the kernel's sources: arch/x86/kernel/cpu/mce/core.c and drivers/edac/mce_amd.c
(processors), drivers/firmware/efi/cper.c and cper-x86.c (firmware's records), drivers/edac (memory;
UE is uncorrected), drivers/pci/pcie/aer.c, fs/xfs/xfs_fsops.c, fs/btrfs, fs/ext4/super.c. A pattern
that a process may have as its name begins with the driver's.
"""

from __future__ import annotations

import re
from typing import Final

from relight.counted import counted

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit, not_judged
from .kernel_log import KernelLine, read_kernel_log
from .result import Outcome

HOURS = Limit("kernel_messages", "hours", 24, "hours")
_HOUR_S: Final = 3600.0
_BAD: Final = re.compile(
    r"\[Hardware Error\]:(?!.*(?:non-?fatal|not fatal|Uncorrected: false)).*(?:Uncorrected|fatal)"
    r"|^mce: Uncorrected hardware memory error"
    r"|^EDAC \S+: (?:\d+ )?UE\b"
    r"|(?:AER:|PCIe Bus Error:).*\bUncorrect(?:ed|able) \(Fatal\)"
    r"|^(?!.*\(loop\d+\)).*Remounting filesystem read-only"
    r"|^BTRFS\b.* forced readonly"
    r"|^XFS \(\S+\): (?!User).*Shutting down filesystem",
    re.IGNORECASE,
)
_ODD: Final = re.compile(
    r"\[Hardware Error\]|blocked for more than \d+ seconds|soft lockup|I/O error,? (?:on )?dev"
    r"|critical medium error|^nvme \S+ I/O .*timeout|Remounting filesystem read-only"
    r"|(?:AER:|PCIe Bus Error:).*Uncorrect(?:ed|able)"
    r"|was evicted by|Connection to \S+ \(at .*\) was lost|Lost carrier|limited by .* PCIe",
    re.IGNORECASE,
)
# The boot error record table (drivers/acpi/apei/bert.c) is written out at the boot that follows, in
# lines that begin with the mark itself; those of errors since then begin with a number or "mce:".
_BERT: Final = "BERT: Error records from previous boot"
_BERT_LINE: Final = "[Hardware Error]:"
_BERT_S: Final = 30.0  # longer than it takes to write them
_SHOWN_CHARS: Final = 160


def check_kernel_messages(candidate: Candidate) -> Finding:
    try:
        lines = read_kernel_log(candidate.root)
    except OSError as error:
        return not_judged(f"the kernel's log: {error.strerror}")
    return judge_messages(lines, candidate.limit(HOURS) * _HOUR_S)


def judge_messages(lines: list[KernelLine], window_s: float) -> Finding:
    """What the lines within the window say against the node (pure).

    What ended the boot before only warns: the node has come back from it.
    """
    recent = [line for line in lines if line.age_s <= window_s]
    since_boot = _without_bert(recent)
    for outcome, pattern, told in (
        (Outcome.FAIL_NODE, _BAD, since_boot),
        (Outcome.WARN, _ODD, recent),
    ):
        found = [line for line in told if pattern.search(line.text)]
        if found:
            newest = found[-1]
            when = f"{newest.age_s / _HOUR_S:.1f} h ago, within {window_s / _HOUR_S:g} h"
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            text = f"{when}{more}: {newest.text[:_SHOWN_CHARS]}"
            return Finding(outcome, text, float(len(found)), "messages")
    return Finding(Outcome.PASS, f"none of note in {counted(len(recent), 'line')}")


def _without_bert(lines: list[KernelLine]) -> list[KernelLine]:
    begun_s = [line.age_s for line in lines if line.text.startswith(_BERT)]
    return [
        line
        for line in lines
        if not line.text.startswith(_BERT_LINE)
        or not any(0 <= begun - line.age_s <= _BERT_S for begun in begun_s)
    ]


CHECK = Check(
    name="kernel_messages",
    reads="/dev/kmsg",
    threshold="no uncorrected hardware error or read-only remount in 24 h; warns of lesser ones",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(HOURS,),
    typical_s=0.1,
    timeout_s=10.0,
    run=check_kernel_messages,
    repeated=True,
)
