"""All checks together: on a kernel that talks nonsense, and on one that says nothing."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from health.roots import make_root

from relight.resilience.config import HealthConfig, RunConfig
from relight.resilience.health import catalogue
from relight.resilience.health.catalogue import CHECKS, all_checks, wanted_checks
from relight.resilience.health.check import Candidate, Check, Finding
from relight.resilience.health.collect import read_reports
from relight.resilience.health.compare import compare
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.verdict import judge
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity

LIMIT_S = 60.0
NODES = 1000
PORT = "sys/class/infiniband/mlx5_0/ports/1"
NET = "sys/class/net/eth0"
FILES = (
    *(f"{NET}/{name}" for name in ("device/vendor", "type", "operstate", "speed", "mtu")),
    *("sys/devices/system/cpu/online", "sys/bus/pci/devices/0000:3b:00.0/vendor"),
    *("proc/meminfo", "proc/loadavg", "proc/uptime", "proc/7/stat", "proc/self/mounts"),
    *("dev/kmsg", "proc/driver/nvidia/version", "sys/fs/lustre/health_check"),
    *("sys/devices/system/edac/mc/mc0/ue_count", "sys/devices/system/edac/mc/mc0/ce_count"),
    *(f"{PORT}/{name}" for name in ("state", "phys_state", "rate", "counters/link_downed")),
    *(f"{PORT}/counters/symbol_error",),
)


@pytest.mark.parametrize("text", ["", "nonsense\n", "\x00\xff" * 100, "1;2,3(4: 5 6\n"])
def test_nonsense_speaks_against_no_node(run_config: RunConfig, tmp_path: Path, text: str) -> None:
    root = make_root(tmp_path / "root", dict.fromkeys(FILES, text))
    candidate = Candidate("n1", run_config, 0.0, (), root)
    results = run_checks(CHECKS, candidate, LIMIT_S)
    assert [result.check for result in results] == [check.name for check in CHECKS]
    against = [result for result in results if result.outcome.name.startswith("FAIL")]
    assert against == []


def test_a_kernel_that_says_nothing_speaks_against_no_node(
    run_config: RunConfig, tmp_path: Path
) -> None:
    results = run_checks(CHECKS, Candidate("n1", run_config, 0.0, (), tmp_path), LIMIT_S)
    assert [result for result in results if result.outcome.name.startswith("FAIL")] == []


def hang(candidate: Candidate) -> Finding:
    threading.Event().wait()
    return fine(candidate)


@pytest.mark.parametrize(
    ("silence", "limit_s", "outcome"),
    [
        (Outcome.UNKNOWN, LIMIT_S, Outcome.UNKNOWN),
        (Outcome.FAIL_NODE, LIMIT_S, Outcome.FAIL_NODE),
        (Outcome.FAIL_NODE, 0.1, Outcome.UNKNOWN),  # it did not have all its time
    ],
)
def test_a_check_that_hangs(
    run_config: RunConfig, silence: Outcome, limit_s: float, outcome: Outcome
) -> None:
    hanging = dataclasses.replace(CHECKS[0], run=hang, timeout_s=0.3, silence=silence)
    (result,) = run_checks([hanging], Candidate("n1", run_config, 0.0), limit_s)
    assert (result.outcome, "no answer" in result.evidence) == (outcome, True)


def test_each_check_says_what_it_is() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.reads
        assert check.threshold
        assert 0 < check.typical_s < check.timeout_s
        assert all(limit.check == check.name for limit in check.limits)
        if check.silence is Outcome.FAIL_NODE:
            # Else the budget would always cut it short, and it could never be said to hang.
            assert check.timeout_s < HealthConfig().budget_s * 0.9


def test_what_a_run_does_not_want() -> None:
    names = {check.name for check in wanted_checks(HealthConfig(skip=("load",)))}
    assert "load" not in names
    assert "site_command" not in names
    assert "site_command" in {c.name for c in wanted_checks(HealthConfig(site_command="nhc"))}


def fine(_candidate: Candidate) -> Finding:
    return Finding(Outcome.PASS, "fine")


SITE_CHECK = dataclasses.replace(CHECKS[0], name="site", run=fine)


def test_checks_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch, run_config: RunConfig
) -> None:
    entries = [
        EntryPoint("site", "test_catalogue_entry:SITE_CHECK", "relight.checks"),
        EntryPoint("text", "os:sep", "relight.checks"),
        EntryPoint("gone", "no_such_module:CHECK", "relight.checks"),
    ]
    loaded = {"test_catalogue_entry:SITE_CHECK": SITE_CHECK, "os:sep": "/"}

    def load(entry: EntryPoint) -> object:
        if entry.value in loaded:
            return loaded[entry.value]
        raise ImportError(entry.value)

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: entries)
    added: tuple[Check, ...] = all_checks()[len(CHECKS) :]
    results = run_checks(added, Candidate("n1", run_config, 0.0), LIMIT_S)
    assert [(result.check, result.outcome) for result in results] == [
        ("site", Outcome.PASS),
        ("text", Outcome.UNKNOWN),
        ("gone", Outcome.UNKNOWN),
    ]


def test_a_thousand_nodes_are_collected_and_judged_in_seconds(tmp_path: Path) -> None:
    nodes = [f"n{number:04}" for number in range(NODES)]
    for number, node in enumerate(nodes):
        outcome = Outcome.FAIL_NODE if number == 500 else Outcome.PASS
        results = tuple(
            CheckResult(
                check=check.name,
                outcome=outcome if check.name == "memory" else Outcome.PASS,
                evidence="what was seen " * 5,
                seconds=0.1,
                fault=Fault.CONDITION,
                facts={"kernel": "5.15" if number == 7 else "6.1"},
            )
            for check in CHECKS
        )
        report = NodeReport(
            node=node, results=results, identity=Identity(), started=0.0, seconds=1.0
        )
        (tmp_path / f"{node}.json").write_text(json.dumps(report.to_json()))
    started = time.monotonic()
    judgement = judge(compare(read_reports(tmp_path, nodes)), "warn")
    seconds = time.monotonic() - started
    assert list(judgement.bad) == ["n0500"]
    assert "uniform: kernel is 5.15" in judgement.warnings[0]
    assert seconds < 30.0
    print(f"{NODES} nodes with {len(CHECKS)} checks: {seconds:.2f} s")
