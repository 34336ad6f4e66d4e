"""What a run keeps about a node that it leaves."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import ExcludeNode
from relight.resilience.decide.causes import FaultCause
from relight.resilience.health.exclusion import evidence_of, record_exclusion
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.ledger.faults import DAY_S, HOUR_S, Fault
from relight.resilience.ledger.record import Evidence, Identity
from relight.resilience.ledger.store import Ledger
from relight.resilience.run_folder import RunFolder

IDENTITY = Identity("boot-1", ("S1", "S2"))


def result(check: str, outcome: Outcome, fault: Fault) -> CheckResult:
    return CheckResult(
        check=check, outcome=outcome, evidence=f"{check} bad", seconds=0.0, fault=fault
    )


REPORT = NodeReport(
    node="n1",
    results=(
        result("memory", Outcome.FAIL_NODE, Fault.CONDITION),
        result("gpu_xid", Outcome.FAIL_NODE, Fault.HARDWARE),
        result("load", Outcome.WARN, Fault.SLOW),
    ),
    identity=IDENTITY,
    started=0.0,
    seconds=0.0,
)


def evidence(cause: str, *reports: NodeReport | None) -> Evidence:
    order = ExcludeNode(node="n1", cause=cause, reason="the order's reason")
    named = {f"n{number}": report for number, report in enumerate(reports, start=1)}
    return evidence_of("mini", "lm-0a1b2c", order, named, 100.0)


def test_failed_checks_are_the_evidence_and_the_gravest_decides() -> None:
    kept = evidence("preflight", REPORT)
    assert (kept.fault, kept.weight, kept.ttl_s) == (Fault.HARDWARE, 1.0, 14 * DAY_S)
    assert kept.lines == ("memory: memory bad", "gpu_xid: gpu_xid bad")
    assert kept.identity == IDENTITY


def test_a_lost_node_is_lost_whatever_its_checks_said() -> None:
    for report in (REPORT, None):
        kept = evidence("node down", report)
        assert (kept.fault, kept.weight, kept.ttl_s) == (Fault.LOST, 1.0, DAY_S)
        assert kept.lines == ("the order's reason",)


@pytest.mark.parametrize(
    ("cause", "fault", "weight"),
    [
        (FaultCause.GPU_HARDWARE, Fault.HARDWARE, 1.0),
        (FaultCause.GPU_LOST, Fault.HARDWARE, 1.0),
        (FaultCause.NETWORK, Fault.NETWORK, 1.0),
        (FaultCause.FILESYSTEM, Fault.CONDITION, 1.0),
        (FaultCause.CRASHED, Fault.PROGRAM, 0.5),
        (FaultCause.HANG, Fault.PROGRAM, 0.5),
        ("a cause of tomorrow", Fault.PROGRAM, 0.5),
    ],
)
def test_what_a_failure_says_of_its_node(cause: str, fault: Fault, weight: float) -> None:
    kept = evidence(cause, REPORT)  # whatever its preflight had said before
    assert (kept.fault, kept.weight, kept.lines) == (fault, weight, ("the order's reason",))


def test_no_clear_answer_is_half_a_suspicion() -> None:
    kept = evidence("preflight", None)
    assert (kept.fault, kept.weight, kept.ttl_s) == (Fault.CONDITION, 0.5, 6 * HOUR_S)


@pytest.mark.parametrize(
    ("elsewhere", "weight"), [(Outcome.PASS, 1.0), (Outcome.FAIL_NODE, 0.5), (None, 0.5)]
)
def test_a_condition_counts_in_full_only_beside_a_node_without_it(
    elsewhere: Outcome | None, weight: float
) -> None:
    """A full disk on the only node of a run may be the run's own directory."""
    full = dataclasses.replace(
        REPORT, results=(result("disk", Outcome.FAIL_NODE, Fault.CONDITION),)
    )
    answers = () if elsewhere is None else (result("disk", elsewhere, Fault.CONDITION),)
    other = dataclasses.replace(REPORT, node="n2", results=answers)
    assert evidence("preflight", full, other).weight == weight


def test_broken_hardware_counts_in_full_on_the_only_node() -> None:
    assert evidence("preflight", REPORT).weight == 1.0


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    return Ledger(tmp_path / "ledger")


ORDER = ExcludeNode(node="n1", cause="preflight", reason="memory")


def test_the_nodes_own_report_is_kept(run_config: RunConfig, ledger: Ledger) -> None:
    out_dir = RunFolder(run_config.run_dir).preflight("7.0")
    out_dir.mkdir(parents=True)
    (out_dir / "n1.json").write_text(json.dumps(REPORT.to_json()))
    record_exclusion(run_config, "7.0", ORDER, 2e9)
    (record,) = ledger.records()
    assert record == evidence_of("mini", run_config.run_id, ORDER, {"n1": REPORT}, 2e9)


@pytest.mark.parametrize("asked", [False, True])
def test_what_a_lost_node_had_said_while_ranks_ran_is_its_fault(
    run_config: RunConfig, ledger: Ledger, asked: bool
) -> None:
    folder = RunFolder(run_config.run_dir)
    for out_dir, report in (
        (folder.watch("7.0"), dataclasses.replace(REPORT, results=()) if asked else REPORT),
        (folder.look("7.0"), REPORT if asked else dataclasses.replace(REPORT, results=())),
    ):
        out_dir.mkdir(parents=True)
        (out_dir / "n1.json").write_text(json.dumps(report.to_json()))
    record_exclusion(run_config, "7.0", dataclasses.replace(ORDER, cause="node down"), 2e9)
    (record,) = ledger.records()
    assert isinstance(record, Evidence)
    assert (record.fault, record.lines) == (Fault.HARDWARE, ("gpu_xid: gpu_xid bad",))


def test_outside_slurm_nothing_is_kept(
    run_config: RunConfig, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CLUSTER_NAME")
    record_exclusion(run_config, "7.0", ORDER, 2e9)
    assert ledger.records() == []


def test_a_ledger_that_takes_nothing_costs_only_the_note(
    run_config: RunConfig,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger.root.write_text("in the way")
    record_exclusion(run_config, "7.0", ORDER, 2e9)
    order = dataclasses.replace(ORDER, node="../n1")
    record_exclusion(run_config, "7.0", order, 2e9)
    assert caplog.text.count("not remembered") == 2


def test_a_run_folder_that_is_away_costs_only_the_note(
    run_config: RunConfig,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def stale(_path: Path, _pattern: str) -> list[Path]:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "glob", stale)
    record_exclusion(run_config, "7.0", ORDER, 2e9)
    assert "not remembered: [Errno 116] Stale file handle" in caplog.text
