"""What reports mean for the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relight.resilience.health.catalogue import CHECKS as CATALOGUE
from relight.resilience.health.check import NO_ANSWER_UNIT
from relight.resilience.health.disk import AWAY_UNIT
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.verdict import ANSWERS, NO_REPORT, RECORDED, judge, unclear_nodes
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity

CHECKS = ("memory", "disk", "clock")
Answers = Mapping[str, Outcome]


def report(node: str, answers: Answers) -> NodeReport:
    results = tuple(
        CheckResult(
            check=check,
            outcome=outcome,
            evidence=f"{check} of {node}",
            seconds=0.0,
            fault=Fault.CONDITION,
        )
        for check, outcome in answers.items()
    )
    return NodeReport(node=node, results=results, identity=Identity(), started=0.0, seconds=0.0)


def reports(count: int, **others: Answers | None) -> dict[str, NodeReport | None]:
    """``count`` nodes; all pass but the others named, of which None has no report."""
    good = dict.fromkeys(CHECKS, Outcome.PASS)
    named = {f"n{i}": others.get(f"n{i}", good) for i in range(count)}
    return {n: None if a is None else report(n, {**good, **a}) for n, a in named.items()}


def test_all_good() -> None:
    judgement = judge(reports(4), "fail")
    assert (judgement.bad, judgement.job_fault, judgement.warnings) == ({}, None, ())


def test_a_bad_node_is_left_with_all_its_evidence() -> None:
    bad = {"memory": Outcome.FAIL_NODE, "disk": Outcome.FAIL_NODE, "clock": Outcome.WARN}
    judgement = judge(reports(4, n1=bad), "warn")
    assert judgement.bad == {"n1": "memory: memory of n1; disk: disk of n1"}
    assert judgement.job_fault is None
    assert judgement.warnings == ("clock: clock of n1 (n1)",)


def test_one_node_alone_can_be_bad() -> None:
    assert set(judge(reports(1, n0={"disk": Outcome.FAIL_NODE}), "warn").bad) == {"n0"}


@pytest.mark.parametrize(("count", "excluded"), [(2, 0), (7, 0), (8, 2), (9, 2)])
def test_more_than_a_quarter_and_two_is_not_the_nodes(count: int, excluded: int) -> None:
    fail = {"memory": Outcome.FAIL_NODE}
    judgement = judge(reports(count, n0=fail, n1=fail), "warn")
    assert len(judgement.bad) == excluded
    assert set(judgement.doubted) == (set() if excluded else {"n0", "n1"})
    assert judgement.job_fault is None
    assert len(judgement.warnings) == (0 if excluded else 1)
    assert all("not the nodes" in w and "n0, n1" in w for w in judgement.warnings)


@pytest.mark.parametrize(
    ("count", "failing", "bad"), [(2, 2, 2), (7, 2, 2), (7, 3, 3), (3, 3, 0), (8, 5, 0)]
)
def test_recorded_hardware_faults_are_of_the_nodes_themselves(
    count: int, failing: int, bad: int
) -> None:
    seen = reports(count)
    for i in range(failing):
        of = report(f"n{i}", {"gpu_xid": Outcome.FAIL_NODE})
        results = tuple(replace(result, fault=Fault.HARDWARE) for result in of.results)
        seen[f"n{i}"] = replace(of, results=results)
    judgement = judge(seen, "warn")
    assert len(judgement.bad) == bad
    assert ("not the nodes" in "".join(judgement.warnings)) is (bad == 0)
    assert {check.name for check in CATALOGUE} > RECORDED


def test_another_check_still_excludes_where_one_is_not_the_nodes() -> None:
    fail = {"memory": Outcome.FAIL_NODE}
    judgement = judge(
        reports(4, n0=fail, n1=fail, n2=fail, n3={"clock": Outcome.FAIL_NODE}), "warn"
    )
    assert judgement.bad == {"n3": "clock: clock of n3"}


def test_a_disk_that_fails_everywhere_is_a_fault_of_the_job() -> None:
    fail = {"disk": Outcome.FAIL_NODE}
    judgement = judge(reports(3, n0=fail, n1=fail, n2=fail), "warn")
    assert judgement.bad == {}
    assert judgement.job_fault == "disk: disk of n0 (n0, n1, n2)"


def test_a_server_that_is_away_from_all_is_waited_for() -> None:
    fail = {"disk": Outcome.FAIL_NODE}
    seen = reports(3, n0=fail, n1=fail, n2=fail)

    def away(unit: str | None, *nodes: str) -> dict[str, NodeReport | None]:
        return {
            name: of and replace(of, results=tuple(replace(r, unit=unit) for r in of.results))
            if name in nodes
            else of
            for name, of in seen.items()
        }

    judgement = judge(away(AWAY_UNIT, "n0", "n1", "n2"), "warn")
    assert (judgement.bad, judgement.job_fault) == ({}, None)
    assert judgement.outage == "disk: disk of n0 (n0, n1, n2)"
    alone = judge({"n0": away(AWAY_UNIT, "n0")["n0"]}, "warn")
    assert (alone.bad, alone.outage) == ({}, "disk: disk of n0 (n0)")
    one = judge({**reports(4), "n0": away(AWAY_UNIT, "n0")["n0"]}, "warn")
    assert (one.bad, one.outage) == ({"n0": "disk: disk of n0"}, None)
    mixed = judge(away(AWAY_UNIT, "n0", "n1"), "warn")
    assert (mixed.outage, mixed.job_fault) == (None, "disk: disk of n0 (n0, n1, n2)")


def with_unit(node: str, outcome: Outcome, unit: str | None) -> NodeReport:
    of = report(node, {"disk": outcome})
    return replace(of, results=tuple(replace(result, unit=unit) for result in of.results))


@pytest.mark.parametrize("policy", ["warn", "fail"])
@pytest.mark.parametrize("others", [1, 7])
def test_who_cannot_look_at_the_disk_hides_no_outage(
    policy: Literal["warn", "fail"], others: int
) -> None:
    away = {f"n{i}": with_unit(f"n{i}", Outcome.FAIL_NODE, AWAY_UNIT) for i in range(others)}
    hangs = with_unit("n8", Outcome.UNKNOWN, NO_ANSWER_UNIT)
    judgement = judge({**away, "n7": None, "n8": hangs}, policy)
    assert judgement.outage is not None
    assert "disk" not in "".join(judgement.bad.values())
    assert judge({"n8": hangs}, policy).outage == "disk: disk of n8 (n8)"
    unheard = dict.fromkeys(f"m{i}" for i in range(8))
    assert judge({**away, **unheard}, policy).outage is None
    sound = judge({**away, "n8": hangs, "n9": report("n9", {"disk": Outcome.PASS})}, policy)
    assert sound.outage is None
    broken = {f"n{i}": report(f"n{i}", {"disk": Outcome.FAIL_NODE}) for i in range(4)}
    assert judge({**broken, "n7": None}, policy).job_fault == "disk: disk of n0 (n0, n1, n2, n3)"


def test_a_disk_that_nobody_could_check_is_no_fault_of_the_job() -> None:
    unknown = {"disk": Outcome.UNKNOWN}
    judgement = judge(reports(2, n0=unknown, n1=unknown), "fail")
    assert (judgement.bad, judgement.job_fault) == ({}, None)
    assert len(judgement.warnings) == 1


def test_a_fault_of_the_job() -> None:
    fail = {"disk": Outcome.FAIL_JOB}
    judgement = judge(reports(2, n0=fail, n1=fail), "warn")
    assert judgement.bad == {}
    assert judgement.job_fault == "disk: disk of n0 (n0, n1)"


def test_a_fault_of_the_job_that_another_node_does_not_meet_is_the_nodes() -> None:
    fail = {"disk": Outcome.FAIL_JOB}
    judgement = judge(reports(4, n2=fail), "warn")
    assert (judgement.bad, judgement.job_fault) == ({"n2": "disk: disk of n2"}, None)
    judgement = judge(reports(4, n2=fail, n3=fail), "warn")
    assert (judgement.bad, judgement.job_fault) == ({}, "disk: disk of n2 (n2, n3)")
    unclear = {"disk": Outcome.UNKNOWN}
    assert judge(reports(2, n0=fail, n1=unclear), "warn").job_fault == "disk: disk of n0 (n0)"


def test_no_answer_is_a_warning() -> None:
    judgement = judge(reports(8, n3=None, n4={"disk": Outcome.UNKNOWN}), "warn")
    assert (judgement.bad, judgement.job_fault) == ({}, None)
    assert set(judgement.warnings) == {
        f"unclear: answers: {NO_REPORT} (n3)",
        "unclear: disk: disk of n4 (n4)",
    }


def test_no_answer_excludes_where_that_is_asked() -> None:
    judgement = judge(reports(8, n3=None, n4={"disk": Outcome.UNKNOWN}), "fail")
    assert judgement.bad == {"n3": f"answers: {NO_REPORT}", "n4": "disk: disk of n4"}
    assert judgement.warnings == ()


def test_a_thousand_nodes_fit_in_one_line() -> None:
    fail: Answers = {"memory": Outcome.FAIL_NODE}
    judgement = judge(reports(1000, **{f"n{i}": fail for i in range(1000)}), "warn")
    (warning,) = judgement.warnings
    assert "and 992 more" in warning
    assert len(warning) < 300


ROWS = st.none() | st.dictionaries(st.sampled_from(CHECKS), st.sampled_from(Outcome))
SITUATIONS = st.lists(ROWS, max_size=12).map(
    lambda rows: {f"n{i}": None if a is None else report(f"n{i}", a) for i, a in enumerate(rows)}
)
POLICIES: st.SearchStrategy[Literal["warn", "fail"]] = st.sampled_from(["warn", "fail"])


def outcomes(situation: Mapping[str, NodeReport | None], node: str) -> set[Outcome]:
    found = situation[node]
    return {result.outcome for result in found.results} if found else {Outcome.UNKNOWN}


@given(SITUATIONS, POLICIES)
def test_only_what_speaks_against_a_node_excludes_it(
    situation: dict[str, NodeReport | None], policy: Literal["warn", "fail"]
) -> None:
    against = {Outcome.FAIL_NODE, Outcome.FAIL_JOB} | (
        {Outcome.UNKNOWN} if policy == "fail" else set()
    )
    for node in judge(situation, policy).bad:
        assert outcomes(situation, node) & against


@given(SITUATIONS, POLICIES)
def test_nothing_that_was_found_is_lost(
    situation: dict[str, NodeReport | None], policy: Literal["warn", "fail"]
) -> None:
    judgement = judge(situation, policy)
    told = "\n".join([*judgement.bad.values(), judgement.job_fault or "", *judgement.warnings])
    for found in situation.values():
        for result in found.results if found else ():
            assert result.outcome is Outcome.PASS or f"{result.check}: " in told


@given(SITUATIONS, POLICIES)
@example(  # those that fail alike are too many to be left, so it stays the fault of the job
    {
        name: report(name, {"memory": Outcome.PASS, "disk": outcome})
        for name, outcome in [
            ("n0", Outcome.FAIL_JOB), ("n1", Outcome.PASS), ("n2", Outcome.FAIL_NODE)
        ]
    },
    "warn",
)  # fmt: skip
def test_a_fault_of_the_job_has_a_cause(
    situation: dict[str, NodeReport | None], policy: Literal["warn", "fail"]
) -> None:
    said = {outcome for node in situation for outcome in outcomes(situation, node)}
    judgement = judge(situation, policy)
    if Outcome.FAIL_JOB in said:
        assert judgement.job_fault is not None or judgement.bad
    elif judgement.job_fault is not None:
        looked = [node for node in situation if outcomes(situation, node) != {Outcome.UNKNOWN}]
        assert any(Outcome.FAIL_NODE in outcomes(situation, node) for node in looked)


@given(SITUATIONS, POLICIES)
def test_one_check_never_excludes_more_than_a_quarter(
    situation: dict[str, NodeReport | None], policy: Literal["warn", "fail"]
) -> None:
    bad = judge(situation, policy).bad
    for check in (*CHECKS, ANSWERS):
        excluded = [node for node, evidence in bad.items() if f"{check}: " in evidence]
        assert len(excluded) <= max(1, len(situation) // 4)


def test_few_unclear_nodes_are_asked_once_more() -> None:
    assert unclear_nodes(reports(4)) == ()
    assert unclear_nodes(reports(4, n1=None)) == ("n1",)
    assert unclear_nodes(reports(4, n2={"disk": Outcome.UNKNOWN})) == ("n2",)
    assert unclear_nodes(reports(8, n2={"disk": Outcome.UNKNOWN}, n3=None)) == ("n2", "n3")


def test_when_many_are_unclear_nobody_is_asked_again() -> None:
    assert unclear_nodes(reports(4, n1=None, n2=None)) == ()
    assert unclear_nodes(reports(1, n0={"disk": Outcome.UNKNOWN})) == ()
    assert unclear_nodes(reports(1, n0=None)) == ("n0",)


def test_evidence_holds_no_other_check() -> None:
    failed = report("n0", {"memory": Outcome.FAIL_NODE, "clock": Outcome.FAIL_NODE})
    first = replace(failed.results[0], evidence="a; disk: full; b c: d")
    judgement = judge({"n0": replace(failed, results=(first, failed.results[1]))}, "warn")
    assert judgement.bad == {"n0": "memory: a, disk: full; b c: d; clock: clock of n0"}
