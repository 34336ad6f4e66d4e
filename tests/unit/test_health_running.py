"""What reports mean while ranks run."""

from __future__ import annotations

import dataclasses

import pytest

from relight.resilience.health.catalogue import CHECKS
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.running import judge_running, softer
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity


def said(outcome: Outcome, fault: Fault, check: str = "gpu_ecc") -> NodeReport:
    result = CheckResult(check=check, outcome=outcome, evidence="seen", seconds=0.0, fault=fault)
    return NodeReport(node="n1", results=(result,), identity=Identity(), started=0.0, seconds=0.0)


@pytest.mark.parametrize("fault", Fault)
def test_only_hardware_and_the_network_speak_against_a_node(fault: Fault) -> None:
    judgement = judge_running({"n1": said(Outcome.FAIL_NODE, fault), "n2": None, "n3": None})
    if fault in (Fault.HARDWARE, Fault.NETWORK):
        assert (dict(judgement.bad), judgement.warnings) == ({"n1": "gpu_ecc: seen"}, ())
    else:
        assert (dict(judgement.bad), judgement.warnings) == ({}, ("gpu_ecc: seen (n1)",))


def test_a_fault_of_the_job_is_told_and_ends_nothing() -> None:
    judgement = judge_running({"n1": said(Outcome.FAIL_JOB, Fault.CONDITION, "room")})
    assert (judgement.job_fault, judgement.warnings) == (None, ("room: seen (n1)",))


def test_what_could_not_be_carried_out_says_nothing() -> None:
    judgement = judge_running({"n1": said(Outcome.UNKNOWN, Fault.HARDWARE), "n2": None})
    assert (dict(judgement.bad), judgement.warnings) == ({}, ())


def test_silent_nodes_count_as_sound_when_many_fail_alike() -> None:
    bad = {
        f"n{number}": said(Outcome.FAIL_NODE, Fault.HARDWARE, "gpu_nvlink") for number in range(2)
    }
    quiet = {f"q{number}": None for number in range(6)}
    assert set(judge_running({**bad, **quiet}).bad) == {"n0", "n1"}
    shared = judge_running(bad)
    assert dict(shared.bad) == {}
    assert "it is not the nodes" in shared.warnings[0]


def test_the_rest_of_a_report_stays() -> None:
    report = said(Outcome.FAIL_NODE, Fault.SLOW)
    (result,) = softer(report).results
    assert result == dataclasses.replace(report.results[0], outcome=Outcome.WARN)


def test_what_is_repeated_writes_nothing_and_is_cheap() -> None:
    repeated = {check.name: check for check in CHECKS if check.repeated}
    some = {"memory_errors", "kernel_messages", "infiniband", "ethernet", "gpu_ecc", "gpu_xid"}
    assert some < set(repeated)
    assert not {"disk", "requested_memory", "load", "stuck", "gpu_occupied", "site_command"} & set(
        repeated
    )
    assert all(check.typical_s <= 1.0 for check in repeated.values())
    assert all(check.silence is Outcome.UNKNOWN for check in repeated.values())
