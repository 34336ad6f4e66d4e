"""Bandwidth of the node's own disk: as in the checkpoint directory, where programs write theirs."""

from __future__ import annotations

from ...ledger.faults import Fault
from ..check import Candidate, Check, Finding, not_judged
from ..result import Outcome
from ..temporary import judge_temporary_error, temporary_directory
from .disk_rate import write_and_read


def check_scratch_rate(candidate: Candidate) -> Finding:
    scratch, checkpoints = temporary_directory(), candidate.config.checkpoint.directory
    level = next(level for level in (checkpoints, *checkpoints.parents) if level.exists())
    try:
        if scratch.stat().st_dev == level.stat().st_dev:
            return not_judged(f"{scratch} is on the filesystem of the checkpoints")
        return write_and_read(scratch)
    except OSError as error:
        return judge_temporary_error(error, f"cannot write in {scratch}")


CHECK = Check(
    name="scratch_rate",
    reads="three writes of 64 MiB with fsync in TMPDIR or /tmp, read back",
    threshold="the same bytes; written at 0.3 of the nodes' median rate or more",
    worst=Outcome.FAIL_NODE,
    fault=Fault.SLOW,
    typical_s=3.0,
    timeout_s=30.0,
    run=check_scratch_rate,
    of_median=0.3,
)
