"""Lustre: what its client and its command say, and which of it speaks against a node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from health.roots import make_root

from relight.resilience.config import RunConfig
from relight.resilience.health import lustre_quota, lustre_space, lustre_targets
from relight.resilience.health.check import Candidate
from relight.resilience.health.lustre_quota import Quota, read_quota
from relight.resilience.health.lustre_space import judge_targets
from relight.resilience.health.lustre_targets import checked_servers
from relight.resilience.health.result import Outcome

PASS, WARN, _, FAIL_JOB, UNKNOWN = Outcome
Lfs = Callable[[str], Candidate]
LFS_DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
fs-MDT0000_UUID          1000000       10000      990000   1% /lustre[MDT:0]
fs-OST0000_UUID         10000000     {used}00000     100000  {used}% /lustre[OST:0]
fs-OST0001_UUID         10000000     5000000     5000000  50% /lustre[OST:1]
"""
SILENT = (
    "fs-OST0002_UUID     : inactive device",
    "OST0001             : inactive device",
    "filesystem-OST0002_UUID: Resource temporarily unavailable",
)
QUOTA = "/lustre {} {} {} - 5 10 10 -\n"
CHECKED = """\
fs-MDT0000-mdc-ffff8800 active.
fs-OST0000-osc-ffff8800 active.
lfs check: error: check 'fs-OST0001-osc-ffff8800': Resource temporarily unavailable (11)
"""


@pytest.fixture
def lfs(tmp_path: Path, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Lfs:
    """A node on Lustre, whose command does what the words say."""

    def on(script: str) -> Candidate:
        (tmp_path / "lfs").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "lfs").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        mounts = {"proc/self/mounts": f"a@o2ib:/fs {tmp_path} lustre rw 0 0\n"}
        return Candidate("n1", run_config, 0.0, (), make_root(tmp_path / "root", mounts))

    return on


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (LFS_DF.format(used=94), PASS),
        (LFS_DF.format(used=95), WARN),
        *((LFS_DF.format(used=10) + line + "\n", WARN) for line in SILENT),
        ("", UNKNOWN),
        ("nonsense 95% OST\n", UNKNOWN),
    ],
)
def test_storage_targets(said: str, outcome: Outcome) -> None:
    assert judge_targets(said, 0.95, Path("/lustre")).outcome is outcome


def test_a_target_that_fails_hides_no_other(lfs: Lfs, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(LFS_DF.format(used=10) + SILENT[2])
    finding = lustre_space.CHECK.run(lfs(f"cat {tmp_path}/said; exit 11"))
    text = "filesystem-OST0002_UUID: Resource temporarily unavailable"
    assert (finding.outcome, finding.evidence) == (WARN, text)


@pytest.mark.parametrize(
    ("words", "quota"),
    [
        ("99 0 0 - 5 10 10 -", Quota(False, None, None)),
        ("99 0 100 - 5 10 10 -", Quota(False, None, 1024)),
        ("99 100 0 - 5 10 10 -", Quota(False, None, None)),
        ("[99] 50 100 - 5 10 10 -", Quota(False, None, 1024)),
        ("101* 50 100 - 5 10 10 -", Quota(True, None, 0)),
        ("60* 50 100 none 5 10 10 -", Quota(True, None, 40 * 1024)),
        ("60* 50 100 6d23h59m58s 5 10 10 -", Quota(False, "6d23h59m58s", 40 * 1024)),
        ("60* 50 0 6d 5 10 10 -", Quota(False, "6d", None)),
        ("6 50 100 - 10* 10 10 -", Quota(True, None, 94 * 1024)),
        ("6 50 100 - 11* 10 20 3d", Quota(False, "3d", 94 * 1024)),
    ],
)
def test_what_a_quota_leaves(words: str, quota: Quota) -> None:
    assert read_quota(f"/lustre {words}\n") == quota


def test_the_group_of_a_setgid_directory(
    lfs: Lfs, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run_config.checkpoint.directory
    directory.mkdir(parents=True, exist_ok=True)
    gid = directory.stat().st_gid
    monkeypatch.setattr(os, "getgid", lambda: gid + 1)
    none, full = QUOTA.format(5, 0, 0).strip(), QUOTA.format("101*", 100, 100).strip()
    candidate = lfs(f"case $3$4 in -g{gid}) echo '{full}' ;; *) echo '{none}' ;; esac")
    for mode, outcome in ((0o755, PASS), (0o2755, FAIL_JOB)):
        directory.chmod(mode)
        assert lustre_quota.CHECK.run(candidate).outcome is outcome


@pytest.mark.parametrize(
    ("option", "quota", "outcome", "part"),
    [
        ("-x", QUOTA.format("101*", 100, 100), PASS, "no limit"),
        ("-u", QUOTA.format("101*", 100, 100), FAIL_JOB, "your quota"),
        ("-g", QUOTA.format("101*", 100, 100), FAIL_JOB, "your group's quota"),
        ("-p", QUOTA.format("101*", 100, 100), FAIL_JOB, "the directory's project's quota"),
        ("-g", QUOTA.format("101*", 100, 2**20).replace("- 5", "6d 5"), WARN, "for 6d more"),
        ("-p", QUOTA.format(1024, 0, 2048), FAIL_JOB, "leaves 1 MiB, 64 MiB asked"),
        ("-p", QUOTA.format(1024, 0, 1024**2), PASS, "1023 MiB left"),
    ],
)
def test_whose_quota_is_asked(
    lfs: Lfs, option: str, quota: str, outcome: Outcome, part: str
) -> None:
    none = QUOTA.format(5, 0, 0).strip()
    asked = f"case $3 in {option}) echo '{quota.strip()}' ;; *) echo '{none}' ;; esac"
    candidate = lfs(f"case $1 in project) echo '7 P /lustre' ;; quota) {asked} ;; esac")
    finding = lustre_quota.CHECK.run(candidate)
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding


def test_a_filesystem_without_projects_has_quotas_all_the_same(lfs: Lfs) -> None:
    none = QUOTA.format(5, 0, 0).strip()
    candidate = lfs(f"case $1 in project) exit 1 ;; *) echo '{none}' ;; esac")
    assert lustre_quota.CHECK.run(candidate).outcome is PASS


def test_elsewhere_nothing_is_judged(run_config: RunConfig, tmp_path: Path) -> None:
    root = make_root(tmp_path / "root", {"proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n"})
    candidate = Candidate("n1", run_config, 0.0, (), root)
    for subject in (lustre_quota, lustre_space, lustre_targets):
        assert "not judged" in subject.CHECK.run(candidate).evidence


def test_what_lfs_check_says() -> None:
    states = {"fs-MDT0000": "active", "fs-OST0000": "active", "fs-OST0001": "silent"}
    assert checked_servers(CHECKED) == states
    assert checked_servers("nonsense") == {}


def test_an_import_of_blank_lines_is_read_in_time(
    lfs: Lfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = lfs("exit 1")
    name = "sys/fs/lustre/osc/fs-OST0001-osc-ffff8800/import"
    make_root(candidate.root, {name: "\n" * 40_000})
    monkeypatch.setattr(lustre_targets, "AGAIN_S", 0.0)
    begun = time.process_time()
    assert lustre_targets.CHECK.run(candidate).outcome is UNKNOWN
    assert time.process_time() - begun < 1.0


def test_lfs_is_asked_where_the_kernel_shows_nothing(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(CHECKED)
    monkeypatch.setattr(lustre_targets, "AGAIN_S", 0.0)
    finding = lustre_targets.CHECK.run(lfs(f"cat {tmp_path}/said; exit 11"))
    assert (finding.outcome, finding.evidence) == (WARN, "fs-OST0001 is silent")
    assert finding.facts == {"lustre targets": "not connected to fs-OST0001"}
    refused = lustre_targets.CHECK.run(lfs("echo 'lfs check: Permission denied' >&2; exit 1"))
    assert "not judged: only root" in refused.evidence


def test_how_many_servers_there_are_is_no_difference(
    lfs: Lfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = []
    for count in (2, 3):
        lines = "".join(f"fs-OST000{number}-osc-ffff8800 active.\\n" for number in range(count))
        finding = lustre_targets.CHECK.run(lfs(f"printf '{lines}'"))
        assert (finding.outcome, finding.value) == (PASS, count)
        facts.append(finding.facts)
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ("FULL", "EVICTED", PASS),  # it is not looked at again
        ("IDLE", "IDLE", PASS),
        ("CONNECTING", "FULL", PASS),
        ("EVICTED", "DISCONN", WARN),
    ],
)
def test_a_connection_is_lost_when_it_stays_so(
    lfs: Lfs, monkeypatch: pytest.MonkeyPatch, first: str, second: str, outcome: Outcome
) -> None:
    candidate = lfs("exit 1")
    name = "proc/fs/lustre/mdc/fs-MDT0000-mdc-ffff8800/import"
    make_root(candidate.root, {name: f"import:\n    state: {first}\n"})
    path = candidate.root / name
    again = f"import:\n    state: {second}\n"
    monkeypatch.setattr(time, "sleep", lambda _s: path.write_text(again))
    assert lustre_targets.CHECK.run(candidate).outcome is outcome
