"""What speaks for a node again."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.health.requalify import nodes_to_test, record_releases, releases
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.ledger import apart
from relight.resilience.ledger.apart import LedgerApart
from relight.resilience.ledger.faults import DAY_S, Fault
from relight.resilience.ledger.record import Evidence, Identity
from relight.resilience.ledger.score import standings
from relight.resilience.ledger.store import Ledger, LedgerUnwritable

NOW = time.time()
DISPROVED = {Fault.HARDWARE, Fault.SLOW, Fault.PROGRAM}
THEN = Identity("boot-1", ("S1",))


def evidence(node: str = "n1", cluster: str = "mini", identity: Identity = THEN) -> Evidence:
    return Evidence(
        cluster=cluster,
        node=node,
        fault=Fault.HARDWARE,
        lines=("Xid 79",),
        weight=1.0,
        ttl_s=DAY_S,
        first_seen=NOW - 60,
        last_seen=NOW - 60,
        run_id="a",
        identity=identity,
    )


def report(identity: Identity = THEN, **outcomes: Outcome) -> NodeReport:
    results = tuple(
        CheckResult(
            check=check, outcome=outcome, evidence="", value=1.0, seconds=0.0, fault=Fault.SLOW
        )
        for check, outcome in outcomes.items()
    )
    return NodeReport(node="n1", results=results, identity=identity, started=0.0, seconds=0.0)


def reasons(of: NodeReport | None) -> list[str]:
    held = standings([evidence()], NOW)
    return [release.reason for release in releases(held, "b", {"n1": of}, NOW)]


def test_passed_active_tests_release_a_node() -> None:
    passed = report(product=Outcome.PASS, gpu_product=Outcome.PASS)
    assert reasons(passed) == ["passed the active tests of run b"]


@pytest.mark.parametrize(
    "of",
    [
        None,
        report(),
        report(memory=Outcome.PASS),
        report(product=Outcome.PASS),  # it has GPUs, and they were not tested
        report(product=Outcome.PASS, gpu_product=Outcome.UNKNOWN),
        report(product=Outcome.PASS, gpu_product=Outcome.PASS, gpu_xid=Outcome.FAIL_NODE),
    ],
)
def test_less_than_that_does_not(of: NodeReport | None) -> None:
    assert reasons(of) == []


def test_a_node_without_gpus_needs_no_test_of_them() -> None:
    held = standings([evidence(identity=Identity("boot-1"))], NOW)
    passed = report(Identity("boot-1"), product=Outcome.PASS)
    assert len(releases(held, "b", {"n1": passed}, NOW)) == 1


def test_other_gpus_after_a_boot_are_another_machine() -> None:
    assert reasons(report(Identity("boot-2", ("S2",)))) == ["other GPUs after a boot"]
    assert reasons(report(Identity("boot-2", ("S1",)))) == []


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    return Ledger(tmp_path / "ledger")


def test_nodes_in_the_ledger_are_tested(
    ledger: Ledger, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(evidence())
    ledger.add(evidence("n2", cluster="other"))
    assert nodes_to_test(run_config, ("n1", "n2")) == ("n1",)
    health = dataclasses.replace(run_config.health, active=True)
    all_of = dataclasses.replace(run_config, health=health)
    assert nodes_to_test(all_of, ("n1", "n2")) == ("n1", "n2")
    monkeypatch.delenv("SLURM_CLUSTER_NAME")
    assert nodes_to_test(run_config, ("n1", "n2")) == ()


def test_a_silent_ledger_names_no_node(
    ledger: Ledger,
    run_config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(apart, "_silent", {ledger.root: time.monotonic()})
    assert nodes_to_test(run_config, ("n1",)) == ()
    record_releases("b", {"n1": report(product=Outcome.PASS)})
    assert caplog.text.count("gave no answer") == 2


def test_a_release_is_kept(ledger: Ledger) -> None:
    ledger.add(evidence())
    ledger.add(evidence("n2"))
    passed = report(product=Outcome.PASS, gpu_product=Outcome.PASS)
    record_releases("b", {"n1": passed, "n2": None})
    assert [one.node for one in standings(ledger.records(), time.time())] == ["n2"]


def test_a_ledger_that_takes_no_release_is_only_logged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.add(evidence())
    monkeypatch.setattr(LedgerApart, "release", _full)
    record_releases("b", {"n1": report(product=Outcome.PASS, gpu_product=Outcome.PASS)})
    assert "no node is released" in caplog.text


def _full(*_: object) -> None:
    raise LedgerUnwritable("No space left on device")


@pytest.mark.parametrize("fault", sorted({*Fault} - DISPROVED))
def test_only_what_tests_can_disprove_is_released(fault: Fault) -> None:
    other = dataclasses.replace(evidence(), fault=fault)
    passed = report(product=Outcome.PASS, gpu_product=Outcome.PASS)
    assert releases(standings([other], NOW), "b", {"n1": passed}, NOW) == []
    both = [other, evidence()]
    (word,) = releases(standings(both, NOW), "b", {"n1": passed}, NOW)
    (left,) = standings([*both, word], NOW)
    assert left.evidence == (other,)


@pytest.mark.parametrize("fault", sorted(DISPROVED))
def test_what_tests_can_disprove(fault: Fault) -> None:
    held = standings([dataclasses.replace(evidence(), fault=fault)], NOW)
    passed = report(product=Outcome.PASS, gpu_product=Outcome.PASS)
    (word,) = releases(held, "b", {"n1": passed}, NOW)
    assert standings([*held[0].evidence, word], NOW) == []


@pytest.mark.parametrize(
    "accused",
    [evidence(), dataclasses.replace(evidence(identity=Identity()), lines=("gpu_xid: Xid 79",))],
)
def test_a_node_of_which_gpus_were_accused_must_have_used_them(accused: Evidence) -> None:
    """Also where this report does not know of any."""
    held, blind = standings([accused], NOW), Identity("boot-1")
    on_processor = report(blind, product=Outcome.PASS)
    assert releases(held, "b", {"n1": on_processor}, NOW) == []
    used = report(blind, product=Outcome.PASS, gpu_product=Outcome.PASS)
    assert len(releases(held, "b", {"n1": used}, NOW)) == 1


def test_a_node_that_cannot_count_its_gpus_may_have_some() -> None:
    held = standings([evidence(identity=Identity("boot-1"))], NOW)
    passed = report(Identity("boot-1"), product=Outcome.PASS, gpu_present=Outcome.UNKNOWN)
    assert releases(held, "b", {"n1": passed}, NOW) == []
