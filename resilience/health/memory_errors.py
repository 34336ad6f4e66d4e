"""Memory errors of the host, as the kernel's EDAC drivers have counted them since the boot."""

from __future__ import annotations

from ..ledger.faults import Fault
from .check import Candidate, Check, Finding, Limit, not_judged
from .result import Outcome
from .trends import CORRECTED_MEMORY

UNCORRECTED = Limit("memory_errors", "uncorrected", 0, "errors since the boot")
CORRECTED = Limit("memory_errors", "corrected", 1000, "errors since the boot")


def check_memory_errors(candidate: Candidate) -> Finding:
    controllers = sorted((candidate.root / "sys/devices/system/edac/mc").glob("mc[0-9]*"))
    if not controllers:
        return not_judged("this machine counts no memory errors (EDAC)")
    most, most_corrected = candidate.limit(UNCORRECTED), candidate.limit(CORRECTED)
    said = {
        name: [(controller / name).read_text().strip() for controller in controllers]
        for name in ("ue_count", "ce_count")
    }
    uncorrected, corrected = (
        sum(int(count) for count in counts if count.isdecimal()) for counts in said.values()
    )
    silent = [count for counts in said.values() for count in counts if not count.isdecimal()]
    outcome = Outcome.PASS
    if silent and uncorrected <= most:
        return Finding(Outcome.UNKNOWN, f"a memory controller counts {silent[0]!r:.100} errors")
    if uncorrected > most:
        outcome = Outcome.FAIL_NODE
    elif corrected > most_corrected:
        outcome = Outcome.WARN
    text = (
        f"{uncorrected} uncorrected and {corrected} corrected errors since the boot, "
        f"at most {most:g} and {most_corrected:g}"
    )
    counts = {CORRECTED_MEMORY: corrected}
    return Finding(outcome, text, float(uncorrected), "errors", counts=counts)


CHECK = Check(
    name="memory_errors",
    reads="/sys/devices/system/edac/mc/*/{ue,ce}_count",
    threshold="no uncorrected error; warns over 1000 corrected ones",
    worst=Outcome.FAIL_NODE,
    fault=Fault.HARDWARE,
    limits=(UNCORRECTED, CORRECTED),
    typical_s=0.01,
    timeout_s=5.0,
    run=check_memory_errors,
    repeated=True,
)
