"""What the kernel's messages say against a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from health.roots import kernel_log, make_root

from relight.resilience.config import RunConfig
from relight.resilience.health.check import Candidate
from relight.resilience.health.kernel_messages import CHECK
from relight.resilience.health.result import Outcome

PASS, WARN, FAIL_NODE = Outcome.PASS, Outcome.WARN, Outcome.FAIL_NODE

# As the kernel's sources write them.
GRAVE = (
    "{1}[Hardware Error]: event severity: fatal",
    "[Hardware Error]: Uncorrected, software restartable error.",
    "mce: Uncorrected hardware memory error in user-access at 8a398a400",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:00:01.0",
    "nvme 0000:34:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
    "XFS (sdb1): Log I/O Error (0x2) detected at xlog_ioend_work+0x6e. Shutting down filesystem.",
    "BTRFS info (device sda2 state EA): forced readonly",
)
LESSER = (
    "{1}[Hardware Error]: event severity: non-fatal",
    "[Hardware Error]: severity: not fatal",
    "EXT4-fs (loop3): Remounting filesystem read-only",  # an image of somebody's
    "blk_update_request: critical medium error, dev sda, sector 7",
    "Buffer I/O error on dev sda1, logical block 3, async page read",
    "nvme nvme0: I/O 5 QID 1 timeout, reset controller",
    "{1}[Hardware Error]: Uncorrected (Non-Fatal)",
    "{1}[Hardware Error]:     Uncorrected: false",
    "igb 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
)
HARMLESS = (
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    "XFS (loop0): User initiated shutdown received. Shutting down filesystem",
    "forced readonly[7]: segfault at 0 ip 0 sp 0 error 4",  # the name of a process
)
BERT = (
    "BERT: Error records from previous boot:",
    "[Hardware Error]: event severity: fatal",
    "usb 1-1: new device",
    "[Hardware Error]:     Uncorrected: true",
)


@pytest.mark.parametrize(
    ("files", "outcome", "part"),
    [
        ({"proc/uptime": "1.0 1.0"}, PASS, "not judged"),
        (kernel_log((1, "usb 1-1: new device")), PASS, "none of note in 1"),
        (
            kernel_log((1, "mce: [Hardware Error]: Machine check: Uncorrected")),
            FAIL_NODE,
            "1.0 h ago, within 24 h: mce",
        ),
        (
            kernel_log((2, "EXT4-fs (sda1): Remounting filesystem read-only")),
            FAIL_NODE,
            "read-only",
        ),
        (
            kernel_log(
                (3, "INFO: task cp:7 blocked for more than 120 seconds."), (2, "ib0: Lost carrier")
            ),
            WARN,
            "2.0 h ago, within 24 h, and 1 more: ib0: Lost carrier",
        ),
        *((kernel_log((1, text)), FAIL_NODE, text) for text in GRAVE),
        *((kernel_log((1, text)), WARN, text) for text in LESSER),
        *((kernel_log((1, text)), PASS, "none of note") for text in HARMLESS),
        (kernel_log(*((1, text) for text in BERT)), WARN, "Uncorrected: true"),
        (
            kernel_log((2, BERT[0]), (1, "[Hardware Error]: System Fatal error.")),
            FAIL_NODE,
            "System Fatal",
        ),
        (kernel_log((25, "Remounting filesystem read-only")), PASS, "0 lines"),
    ],
)
def test_what_the_kernel_says(
    run_config: RunConfig, tmp_path: Path, files: Mapping[str, str], outcome: Outcome, part: str
) -> None:
    finding = CHECK.run(Candidate("n1", run_config, 0.0, (), make_root(tmp_path, files)))
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding
