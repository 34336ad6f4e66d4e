"""XIDs: which lines of the kernel's log speak against a node, and the table that says so."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from health.roots import kernel_log, make_root

from relight.resilience.config import RunConfig
from relight.resilience.health.check import Candidate
from relight.resilience.health.gpu import xid
from relight.resilience.health.gpu.xid_table import XidTableDamaged, read_xid_table
from relight.resilience.health.result import Outcome

PASS, WARN, FAIL_NODE, *_ = Outcome


@pytest.fixture
def candidate(run_config: RunConfig, tmp_path: Path) -> Candidate:
    return Candidate("n1", run_config, 0.0, (), tmp_path)


def said(
    hours: float, number: int, board: str = "0000:3b:00", words: str = "pid=7, name=python"
) -> tuple[float, str]:
    return hours, f"NVRM: Xid (PCI:{board}): {number}, {words}"


def recovery_of(hours: float, action: str, board: str = "0000:3b:00") -> tuple[float, str]:
    text = f"GPU recovery action changed from 0x1 (Drain P2P) to 0x0 ({action})"
    return said(hours, 154, board, text)


def of_nvlink(number: int, severity: str) -> tuple[float, str]:
    """As in NVIDIA's catalog: 0x100 in RLW_REMAP is to be ignored."""
    words = f"RLW_REMAP {severity} XC1 i0 Link 10 (0x00000004 0x00000100 0x00000000)"
    return said(1, number, words=words)


@pytest.mark.parametrize(
    ("lines", "outcome", "part"),
    [
        ([], PASS, "no XID"),
        ([(1, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module")], PASS, "no XID"),
        ([said(1, 79)], FAIL_NODE, "Xid 79 on 0000:3b:00, 1.0 h ago"),
        ([said(25, 79)], PASS, "no XID"),
        ([said(1, 31)], WARN, "Xid 31"),
        ([said(3, 31)], PASS, "no XID"),
        ([said(1, 43), said(1, 45), said(1, 63)], PASS, "no XID"),
        ([said(1, 94)], WARN, "Xid 94"),
        ([said(1, 94), said(1, 94, "0000:5e:00")], WARN, "Xid 94"),
        ([said(2, 94), said(1, 94)], FAIL_NODE, "Xid 94"),
        ([said(1, 9999)], WARN, "Xid 9999"),
        ([said(1, 94), said(0.999, 94, words="Ch 00000012")], WARN, "Xid 94"),
        ([said(1, 94), said(0.99, 94), said(0.98, 94)], FAIL_NODE, "Xid 94"),
        ([said(1, 95, "0000:3b:00 GPU-I:05")], FAIL_NODE, "Xid 95 on 0000:3b:00"),
        ([of_nvlink(145, "Nonfatal")], WARN, "RLW_REMAP Nonfatal"),
        ([of_nvlink(145, "Fatal")], FAIL_NODE, "RLW_REMAP Fatal"),
        ([said(1, 79, words="pid=7, name=X Nonfatal")], FAIL_NODE, "Xid 79"),
        ([of_nvlink(155, "Nonfatal")], WARN, "Xid 155"),
        ([said(1, 155), said(1, 167), said(1, 169)], WARN, "Xid 155"),
        ([recovery_of(1, "GPU Reset Required")], FAIL_NODE, "Xid 154"),
        ([recovery_of(1, "None")], WARN, "Xid 154"),
        ([recovery_of(2, "GPU Reset Required"), recovery_of(1, "None")], WARN, "Xid 154"),
        ([recovery_of(2, "None"), recovery_of(1, "Drain P2P")], FAIL_NODE, "Drain P2P"),
        (
            [recovery_of(2, "GPU Reset Required"), recovery_of(1, "None", "0000:5e:00")],
            FAIL_NODE,
            "GPU Reset Required",
        ),
    ],
)
def test_xids(
    candidate: Candidate, lines: list[tuple[float, str]], outcome: Outcome, part: str
) -> None:
    make_root(candidate.root, kernel_log(*lines))
    finding = xid.CHECK.run(candidate)
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding


def test_a_kernel_log_that_may_not_be_read(candidate: Candidate) -> None:
    make_root(candidate.root, {"proc/uptime": "1.0 1.0"})
    assert "not judged" in xid.CHECK.run(candidate).evidence


def test_a_sites_own_table(candidate: Candidate, tmp_path: Path) -> None:
    table = tmp_path / "xids.json"
    table.write_text('{"version": "site-1", "hardware": [31], "information": [79]}')
    health = dataclasses.replace(candidate.config.health, xid_table=str(table))
    config = dataclasses.replace(candidate.config, health=health)
    here = dataclasses.replace(candidate, config=config)
    make_root(candidate.root, kernel_log(said(1, 79)))
    assert "site-1" in xid.CHECK.run(here).evidence
    make_root(candidate.root, kernel_log(said(1, 31)))
    assert xid.CHECK.run(here).outcome is FAIL_NODE


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "1", "hardware": 79}', "null"])
def test_a_damaged_table(tmp_path: Path, text: str) -> None:
    (tmp_path / "xids.json").write_text(text)
    with pytest.raises(XidTableDamaged, match="not usable"):
        read_xid_table(str(tmp_path / "xids.json"))


def test_the_table_that_comes_with_relight_names_each_xid_once() -> None:
    kinds = read_xid_table(None).kinds
    assert (kinds[79], kinds[31], kinds[43]) == ("hardware", "program", "information")
    source = Path(xid.__file__).with_name("xid_table.json")
    lists = [value for value in json.loads(source.read_text()).values() if isinstance(value, list)]
    assert sum(map(len, lists)) == len(kinds)
