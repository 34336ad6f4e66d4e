"""What only shows when the nodes of a run are laid side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from relight.resilience.health.compare import REACHABLE, UNIFORM, compare
from relight.resilience.health.gpu.present import GIVEN
from relight.resilience.health.infiniband import PORTS
from relight.resilience.health.lustre_targets import TARGETS
from relight.resilience.health.peers import REACHED, UNREACHED
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.health.verdict import judge
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity

Facts = Mapping[str, str]
USED = {GIVEN: "8"}


def report(node: str, facts: Facts) -> NodeReport:
    result = CheckResult(
        check="software",
        outcome=Outcome.PASS,
        evidence="",
        seconds=0.0,
        fault=Fault.CONDITION,
        facts=facts,
    )
    return NodeReport(node=node, results=(result,), identity=Identity(), started=0.0, seconds=0.0)


def found(facts: Mapping[str, Facts | None], check: str) -> dict[str, tuple[Outcome, str]]:
    reports = {node: None if of is None else report(node, of) for node, of in facts.items()}
    return {
        node: (result.outcome, result.evidence)
        for node, judged in compare(reports).items()
        if judged is not None
        for result in judged.results
        if result.check == check
    }


def test_the_odd_one_out() -> None:
    facts: dict[str, Facts | None] = {f"n{i}": {**USED, "gpu driver": "570"} for i in range(4)}
    assert found(facts, UNIFORM) == {}
    facts["n2"] = {**USED, "gpu driver": "535"}
    text = "gpu driver is 535, on 3 of 4 nodes it is 570"
    assert found(facts, UNIFORM) == {"n2": (Outcome.FAIL_NODE, text)}
    facts["n2"] = USED
    assert found(facts, UNIFORM)["n2"][1].startswith("gpu driver is absent")
    facts["n2"] = None
    assert found(facts, UNIFORM) == {}
    facts["n2"] = {"python": "3"}  # it gives the run no GPU, which other nodes of it do
    assert "gpu driver" not in found(facts, UNIFORM)["n2"][1]


def test_gpus_that_nobody_uses_exclude_no_node() -> None:
    with_driver = {"gpu driver": "570", "cuda": "12", "nvidia_peermem": "not loaded"}
    facts: dict[str, Facts | None] = {f"n{i}": with_driver for i in range(20)}
    facts |= {f"n{i}": {} for i in range(4)}
    assert found(facts, UNIFORM) == {}
    facts["n0"] = {**with_driver, "gpu driver": "535"}
    assert found(facts, UNIFORM)["n0"][0] is Outcome.WARN


@pytest.mark.parametrize(
    ("odd", "outcome"),
    [
        ("4 active, 400 Gb/sec (4X NDR)", Outcome.WARN),  # it has more
        ("3 active, 100 Gb/sec (4X EDR), 400 Gb/sec (4X NDR)", Outcome.WARN),
        ("2 active, 800 Gb/sec (4X XDR)", Outcome.WARN),
        ("2 active, 100 Gb/sec (4X EDR), 400 Gb/sec (4X NDR)", Outcome.FAIL_NODE),
        ("2 active, 1.5 Gb/sec", Outcome.FAIL_NODE),
        ("1 active, 400 Gb/sec (4X NDR)", Outcome.FAIL_NODE),
        ("0 active, ", Outcome.FAIL_NODE),
    ],
)
def test_ports_speak_against_a_node_when_they_are_fewer_or_slower(
    odd: str, outcome: Outcome
) -> None:
    facts: dict[str, Facts] = {f"n{i}": {PORTS: "2 active, 400 Gb/sec (4X NDR)"} for i in range(9)}
    facts["n2"] = {PORTS: odd}
    assert found(facts, UNIFORM)["n2"][0] is outcome


def test_a_check_without_an_answer_does_not_make_the_odd_one_out() -> None:
    reports = {f"n{i}": report(f"n{i}", {PORTS: "8 active"}) for i in range(4)}
    for outcome, odd in ((Outcome.UNKNOWN, False), (Outcome.PASS, True)):
        (result,) = report("n2", {}).results
        silent = dataclasses.replace(result, outcome=outcome)
        judged = compare({**reports, "n2": dataclasses.replace(reports["n2"], results=(silent,))})
        assert (judge(judged, "warn").bad != {}) is odd


def test_other_software_only_warns() -> None:
    facts = {f"n{i}": {"kernel": "6.1" if i else "5.15"} for i in range(4)}
    assert found(facts, UNIFORM)["n0"][0] is Outcome.WARN


def test_a_lustre_server_that_only_one_node_has_lost_is_the_nodes_fault() -> None:
    facts: dict[str, Facts | None] = {f"n{i}": {TARGETS: "all connected"} for i in range(4)}
    facts["n2"] = {TARGETS: "not connected to fs-OST0003"}
    assert found(facts, UNIFORM)["n2"][0] is Outcome.FAIL_NODE
    facts["n2"] = {}  # mounted when it is first used
    assert found(facts, UNIFORM) == {}
    facts = {f"n{i}": {TARGETS: "not connected to fs-OST0001"} for i in range(4)}
    facts["n2"] = {TARGETS: "all connected"}
    assert found(facts, UNIFORM)["n2"][0] is Outcome.WARN
    facts["n2"] = {TARGETS: "not connected to fs-OST0001, fs-OST0003"}
    assert found(facts, UNIFORM)["n2"][0] is Outcome.FAIL_NODE


def test_without_a_majority_nobody_is_odd() -> None:
    assert found({f"n{i}": {"kernel": str(i % 2)} for i in range(4)}, UNIFORM) == {}
    assert found({"n0": {"kernel": "a"}, "n1": {"kernel": "b"}}, UNIFORM) == {}


def test_boards_differ_by_nature() -> None:
    assert found({f"n{i}": {"gpu serials": str(i > 0)} for i in range(4)}, UNIFORM) == {}


def reach(*links: str, nodes: int = 5) -> dict[str, tuple[Outcome, str]]:
    """Ring of nodes, each asking the next three; ``n1-n2`` is a question without an answer."""
    facts = {}
    for i in range(nodes):
        asked = [f"n{(i + step) % nodes}" for step in (1, 2, 3)]
        silent = [peer for peer in asked if f"n{i}-{peer}" in links]
        good = [peer for peer in asked if peer not in silent]
        facts[f"n{i}"] = {REACHED: " ".join(good), UNREACHED: " ".join(silent)}
    return found(facts, REACHABLE)


def test_one_question_without_an_answer_accuses_nobody() -> None:
    assert reach() == {}
    assert reach("n1-n2") == {}
    of_two = {"n0": {REACHED: "", UNREACHED: "n1"}, "n1": {REACHED: "n0", UNREACHED: ""}}
    assert found(of_two, REACHABLE) == {}


def test_a_node_that_nobody_reaches_is_cut_off() -> None:
    assert reach("n1-n2", "n0-n2", "n4-n2") == {
        "n2": (Outcome.FAIL_NODE, "none of n0, n1, n4 reached it")
    }


def test_a_node_that_reaches_nobody_is_cut_off_and_those_it_asked_are_not() -> None:
    assert reach("n2-n3", "n2-n4", "n2-n0") == {
        "n2": (Outcome.FAIL_NODE, "it reached none of n3, n4, n0")
    }


def test_a_firewall_everywhere_is_not_the_nodes() -> None:
    facts = {f"n{i}": {REACHED: "", UNREACHED: f"n{(i + 1) % 5} n{(i + 2) % 5}"} for i in range(5)}
    judged = judge(compare({node: report(node, of) for node, of in facts.items()}), "warn")
    assert judged.bad == {}
    assert any(warning.startswith("reachable: ") for warning in judged.warnings)


def dark(nodes: int, *dead: int, linked: bool = False, silent: bool = False) -> set[str]:
    """Who is bad in a ring of which the ``dead`` are cut off, or reach only each other."""
    facts: dict[str, Facts | None] = {}
    for i in range(nodes):
        asked = [(i + step) % nodes for step in (1, 2, 3)]
        cut = [
            peer for peer in asked if (peer in dead) != (i in dead) or (i in dead and not linked)
        ]
        good = [peer for peer in asked if peer not in cut]
        named = [" ".join(f"n{peer}" for peer in some) for some in (good, cut)]
        facts[f"n{i}"] = {REACHED: named[0], UNREACHED: named[1]}
        if silent and i in dead:
            facts[f"n{i}"] = None
    reports = {node: None if of is None else report(node, of) for node, of in facts.items()}
    return set(judge(compare(reports), "warn").bad)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("nodes", "dead"), [(24, (5, 6, 7)), (16, (5, 6, 7)), (24, (23, 0, 1)), (24, (4, 5, 6, 7, 8))]
)
def test_the_neighbours_of_those_that_are_cut_off_are_not_accused(
    nodes: int, dead: tuple[int, ...], linked: bool
) -> None:
    assert dark(nodes, *dead, linked=linked) == {f"n{i}" for i in dead}
    assert dark(nodes, *dead, linked=linked, silent=True) == set()


@pytest.mark.parametrize("outwards", [False, True])
def test_one_way_faults_side_by_side_accuse_no_neighbour(outwards: bool) -> None:
    bad = (5, 6, 7)
    links = [
        f"n{i}-n{(i + step) % 24}"
        for i in range(24)
        for step in (1, 2, 3)
        if (i if outwards else (i + step) % 24) in bad
    ]
    assert set(reach(*links, nodes=24)) == {"n5", "n6", "n7"}


def test_a_node_that_asked_only_dead_ones_is_not_accused() -> None:
    facts: dict[str, Facts | None] = {"n3": {REACHED: "", UNREACHED: "n5 n9"}, "n5": None}
    reports = {node: None if of is None else report(node, of) for node, of in facts.items()}
    judged = judge(compare({**reports, "n9": None}), "warn")
    assert judged.bad == {}
    assert any("it and n5, n9 do not reach" in warning for warning in judged.warnings)
