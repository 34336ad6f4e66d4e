"""Tests that make a node work: what they find, and what it means beside the other nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from health.gpu_cases import do_little

from relight.resilience.health.active import (
    boards,
    disk_rate,
    gpu_copy,
    gpu_diag,
    gpu_memory,
    gpu_peers,
    gpu_product,
    gpu_sum,
    memory_rate,
    product,
)
from relight.resilience.health.active.boards import BOARDS, MODEL
from relight.resilience.health.active.floors import DATA_SHEETS, SHARES, floor
from relight.resilience.health.active.gpu_product import PRODUCT, product_on
from relight.resilience.health.catalogue import ACTIVE
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.compare import compare
from relight.resilience.health.preflight import examine
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@pytest.fixture(autouse=True)
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    do_little(monkeypatch)


@pytest.mark.parametrize("subject", [product, memory_rate, disk_rate])
def test_this_machine_works(candidate: Candidate, subject: object) -> None:
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert finding.outcome is Outcome.PASS
    assert finding.value is not None
    assert finding.value > 0


@pytest.mark.parametrize("subject", [product, memory_rate])
def test_a_machine_that_calculates_wrongly(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, subject: object
) -> None:
    monkeypatch.setattr(np, "array_equal", lambda _one, _other: False)
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert (finding.outcome, finding.fault) == (Outcome.FAIL_NODE, Fault.HARDWARE)
    assert "wrong" in finding.evidence


def test_a_product_with_one_wrong_bit_is_seen(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = np.array_equal

    def flipped(one: Vector, other: Vector) -> bool:
        one.view(np.uint64)[7] ^= np.uint64(1)
        return right(one, other)

    monkeypatch.setattr(np, "array_equal", flipped)
    assert product.CHECK.run(candidate).outcome is Outcome.FAIL_NODE


DIAG = """{{"DCGM GPU Diagnostic": {{"test_categories": [{{"category": "Deployment", "tests": [
{{"name": "Denylist", "results": [{{"gpu_ids": "0", "status": "PASS"}}]}},
{{"name": "Row Remap", "results": [{{"gpu_ids": "0", "status": "{}"}}]}}]}}]}}}}"""


@pytest.mark.parametrize(
    ("said", "outcome", "part"),
    [
        (DIAG.format("PASS"), Outcome.PASS, "2 results"),
        ("a warning\n" + DIAG.format("SKIP"), Outcome.PASS, "1 results"),
        (DIAG.format("WARN"), Outcome.WARN, "Row Remap"),
        (DIAG.format("FAIL"), Outcome.FAIL_NODE, "Row Remap"),
        (DIAG.format("FAIL").replace("PASS", "NOT RUN"), Outcome.FAIL_NODE, "Row Remap"),
        (DIAG.format("SKIP").replace("PASS", "Skip"), Outcome.UNKNOWN, "no test has run"),
        ('{"runtime_error": "no host engine"}', Outcome.UNKNOWN, "no test has run"),
        ("Error: unable to connect", Outcome.UNKNOWN, "unable to connect"),
        ("{" * 100_000, Outcome.UNKNOWN, "exited with 1"),
    ],
)
def test_what_dcgm_says(said: str, outcome: Outcome, part: str) -> None:
    finding = gpu_diag.judge_diag(said, 1)
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding


ON_BOARDS = (gpu_product, gpu_memory, gpu_copy, gpu_peers, gpu_sum)


@pytest.mark.parametrize("subject", ON_BOARDS)
def test_without_a_gpu_nothing_is_judged(candidate: Candidate, subject: object) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    assert "not judged" in check.run(candidate).evidence


@pytest.fixture
def two_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for both; NCCL's part is done by hand."""

    def add(parts: Sequence[torch.Tensor], sums: Sequence[torch.Tensor]) -> None:
        for total in sums:
            total.copy_(torch.stack(list(parts)).sum(0))

    monkeypatch.setattr(boards, "find_boards", lambda: [torch.device("cpu")] * 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _board: "NVIDIA H200")
    monkeypatch.setattr(gpu_sum, "all_reduce", add)
    monkeypatch.setattr(gpu_product, "SIZE", 64)
    monkeypatch.setattr(gpu_sum, "NUMBERS", 1024)
    for subject in (gpu_memory, gpu_copy, gpu_peers):
        monkeypatch.setattr(subject, "ARRAY_BYTES", 1024**2)


@pytest.mark.usefixtures("two_boards")
@pytest.mark.parametrize("subject", ON_BOARDS)
def test_good_boards(candidate: Candidate, subject: object) -> None:
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert finding.outcome is Outcome.PASS
    assert finding.value is not None
    assert finding.value > 0
    if subject is gpu_product:
        assert (finding.facts[MODEL], finding.facts[BOARDS]) == ("NVIDIA H200", "2")


@pytest.mark.usefixtures("two_boards")
@pytest.mark.parametrize("subject", [gpu_memory, gpu_peers])
def test_boards_that_copy_wrongly(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, subject: object
) -> None:
    monkeypatch.setattr(torch, "equal", lambda _one, _other: False)
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    finding = check.run(candidate)
    assert (finding.outcome, finding.fault) == (Outcome.FAIL_NODE, Fault.HARDWARE)


@pytest.mark.usefixtures("two_boards")
def test_boards_that_add_up_wrongly(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sum, "all_reduce", lambda _parts, sums: sums[1].fill_(2.5))
    finding = gpu_sum.CHECK.run(candidate)
    assert (finding.outcome, finding.fault) == (Outcome.FAIL_NODE, Fault.HARDWARE)
    assert finding.evidence == "the sum of all GPUs is wrong on GPU 0, 1"


@pytest.mark.usefixtures("two_boards")
def test_boards_that_multiply_to_other_bits(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sums, text in (
        ((8, 7, 7), "GPU 0 multiplies to other bits than the rest"),
        ((7, 8), "GPU 0, 1 multiply to different bits, and most agree on none"),
    ):
        answers = iter([(total, 1.0) for total in sums])
        found = [torch.device("cpu")] * len(sums)
        monkeypatch.setattr(boards, "find_boards", lambda found=found: found)
        monkeypatch.setattr(gpu_product, "product_on", lambda *_, given=answers: next(given))
        finding = gpu_product.CHECK.run(candidate)
        assert (finding.outcome, finding.fault) == (Outcome.FAIL_NODE, Fault.HARDWARE)
        assert finding.evidence == text


@pytest.mark.parametrize("subject", [gpu_peers, gpu_sum])
def test_one_board_has_no_peer(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch, subject: object
) -> None:
    monkeypatch.setattr(boards, "find_boards", lambda: [torch.device("cpu")])
    check: Check = subject.CHECK  # type: ignore[attr-defined]
    assert "not judged: 1 GPU, 2 are needed" in check.run(candidate).evidence


def test_floors_are_below_what_sound_boards_were_seen_to_reach() -> None:
    """Rates that others published: MAMF, gpu-fryer, DCGM's measured floors, Azure, OCI."""
    sound = {
        "NVIDIA A100-SXM4-80GB": (271, 1173, 21, 185),
        "NVIDIA H100 80GB HBM3": (730, 1905, 48, 440),
        "NVIDIA H200": (794, 2333, 48, 431),
    }
    for model, (product_, memory_, copy, total) in sound.items():
        facts = {MODEL: model, BOARDS: "8"}
        rates = {"gpu_product": product_, "gpu_memory": memory_, "gpu_copy": copy, "gpu_sum": total}
        for test, rate in rates.items():
            least = floor(test, facts)
            assert least is not None
            assert 0.4 * rate < least < rate, (model, test, least)


def test_where_no_floor_is_published_nothing_is_judged() -> None:
    h200 = {MODEL: "NVIDIA H200", BOARDS: "8"}
    assert floor("product", h200) is None
    assert floor("gpu_product", {MODEL: "NVIDIA H200 MIG 1g.18gb", BOARDS: "1"}) is None
    assert floor("gpu_product", {MODEL: "NVIDIA GeForce RTX 3090", BOARDS: "8"}) is None
    assert floor("gpu_product", {}) is None
    assert floor("gpu_sum", {**h200, BOARDS: "4"}) is None
    assert floor("gpu_sum", {MODEL: "NVIDIA H100 PCIe", BOARDS: "8"}) is None
    nvl = {MODEL: "NVIDIA H200 NVL", BOARDS: "8"}  # of which bridges join two or four
    assert (floor("gpu_sum", nvl), floor("gpu_peers", nvl)) == (None, None)
    assert floor("gpu_memory", nvl) == floor("gpu_memory", h200)
    assert floor("gpu_memory", {MODEL: "NVIDIA H200, NVIDIA H200 NVL", BOARDS: "8"}) is None
    assert set(SHARES) <= {test.name for test in ACTIVE}
    assert all(sheet.memory_gb_s > 0 for sheet in DATA_SHEETS.values())


def on_h200(check: str, **values: float) -> dict[str, NodeReport | None]:
    facts = {MODEL: "NVIDIA H200", BOARDS: "8"}
    return {
        node: report
        and dataclasses.replace(
            report, results=(dataclasses.replace(report.results[0], facts=facts),)
        )
        for node, report in reports(check, **values).items()
    }


def test_the_floor_judges_what_is_slow_everywhere() -> None:
    judged = compare(on_h200("gpu_memory", n1=2000.0))
    text = "2000 GB/s, below the floor of 2160 for NVIDIA H200"
    assert accused(judged) == {"n1": (text, Fault.SLOW)}
    assert set(accused(compare(on_h200("gpu_memory", n1=2000, n2=2001, n3=2002)))) == {
        *("n1", "n2", "n3")
    }


def test_the_median_judges_first() -> None:
    judged = compare(on_h200("gpu_memory", n1=4000.0, n2=4001.0, n3=2000.0))
    assert accused(judged) == {
        "n3": ("2000 GB/s, 50.0% of the nodes' median, at least 90%", Fault.SLOW)
    }
    slow = judged["n3"]
    assert slow is not None
    assert len(slow.results) == 2, "it is said once"


def test_the_product_of_boards_is_the_same_each_time() -> None:
    one, _ = product_on(torch.device("cpu"), size=128, rounds=1)
    other, rate = product_on(torch.device("cpu"), size=128, rounds=2)
    assert one == other
    assert rate > 0


def test_active_tests_are_run_only_when_asked(candidate: Candidate) -> None:
    quick = dataclasses.replace(
        candidate.config, health=dataclasses.replace(candidate.config.health, skip=("disk_rate",))
    )
    here = dataclasses.replace(candidate, config=quick)
    names = {result.check for result in examine(here, 0.0).results}
    assert not names & {test.name for test in ACTIVE}
    more = {result.check for result in examine(here, 0.0, active=True).results}
    assert more - names >= {"product", "memory_rate"}
    assert "disk_rate" not in more


def reports(check: str, **values: float) -> dict[str, NodeReport | None]:
    return {
        node: NodeReport(
            node=node,
            results=(
                CheckResult(
                    check=check,
                    outcome=Outcome.PASS,
                    evidence="",
                    value=value,
                    unit="GB/s",
                    seconds=1.0,
                    fault=Fault.SLOW,
                    facts={PRODUCT: str(value)} if check == PRODUCT else {},
                ),
            ),
            identity=Identity(),
            started=0.0,
            seconds=1.0,
        )
        for node, value in values.items()
    }


def accused(judged: dict[str, NodeReport | None]) -> dict[str, tuple[str, Fault]]:
    return {
        node: (report.results[-1].evidence, report.results[-1].fault)
        for node, report in judged.items()
        if report is not None and report.results[-1].outcome is Outcome.FAIL_NODE
    }


def test_a_slow_checkpoint_directory_only_warns() -> None:
    judged = compare(reports("disk_rate", n1=100.0, n2=101.0, n3=2.0))
    assert [r.results[-1].outcome for r in judged.values() if r] == [
        *(Outcome.PASS, Outcome.PASS, Outcome.WARN)
    ]
    own = compare(reports("scratch_rate", n1=100.0, n2=101.0, n3=2.0))
    assert set(accused(own)) == {"n3"}


def test_a_slow_node_is_slow_beside_the_median() -> None:
    judged = compare(reports("product", n1=100.0, n2=101.0, n3=69.0, n4=99.0))
    assert accused(judged) == {
        "n3": ("69 GB/s, 69.3% of the nodes' median, at least 70%", Fault.SLOW)
    }
    assert accused(compare(reports("product", n1=100.0, n2=101.0, n3=71.0))) == {}


def test_two_nodes_have_no_median() -> None:
    assert accused(compare(reports("product", n1=100.0, n2=1.0))) == {}


def test_a_board_that_multiplies_to_other_bits_than_those_of_other_nodes() -> None:
    judged = compare(reports(PRODUCT, n1=7.0, n2=7.0, n3=8.0, n4=7.0))
    assert accused(judged)["n3"][1] is Fault.HARDWARE


def test_nodes_that_were_not_tested_are_not_odd() -> None:
    tested = reports(PRODUCT, n1=7.0, n2=7.0, n3=7.0)
    assert accused(compare({**tested, **reports("product", n4=1.0, n5=1.0)})) == {}
