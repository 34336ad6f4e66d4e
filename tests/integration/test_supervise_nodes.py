"""Questions to nodes as steps: who is asked again, who is put to work, who stays silent."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import NodesProbed
from relight.resilience.health.collect import stamps
from relight.resilience.health.disk import AWAY_UNIT
from relight.resilience.health.gpu.present import GIVEN
from relight.resilience.health.preflight import ACTIVE_NODES, write_report
from relight.resilience.health.result import CheckResult, NodeReport, Outcome
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Identity
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise import nodes as asking
from relight.resilience.supervise.cluster import (
    Allocation,
    Cluster,
    Command,
    NodeCondition,
    StepRequest,
)

NODES = ("n1", "n2", "n3", "n4", "n5")
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=NODES, batch_node="n1", supervisor_host="n1"
)
Answer = Callable[[str, int], Outcome | None]


class Nodes:
    """A cluster on which each node answers as the test wants, by its name and the step's number."""

    def __init__(
        self, out_dir: Path, answer: Answer, check: str = "memory", unit: str | None = None
    ) -> None:
        self._out_dir = out_dir
        self._answer = answer
        self._of = (check, unit)
        self.drivers: dict[str, str] = {}
        self.one_machine = False
        self.steps: list[StepRequest] = []

    def step_command(self, request: StepRequest) -> Command:
        self.steps.append(request)
        for node in request.nodes:
            outcome = self._answer(node, len(self.steps))
            if outcome is not None:
                told = report(node, outcome, *self._of)
                facts = {GIVEN: "8", "gpu driver": self.drivers.get(node, "1")}
                result = dataclasses.replace(told.results[0], facts=facts)
                write_report(self._out_dir, dataclasses.replace(told, results=(result,)))
        return Command(("true",), os.environ)

    def node_address(self, node: str) -> str:
        return "127.0.0.1" if self.one_machine else node

    def asked(self) -> list[tuple[str, ...]]:
        return [step.nodes for step in self.steps]


def report(
    node: str, outcome: Outcome, check: str = "memory", unit: str | None = None
) -> NodeReport:
    result = CheckResult(
        check=check,
        outcome=outcome,
        evidence="seen",
        unit=unit,
        seconds=0.0,
        fault=Fault.HARDWARE,
    )
    return NodeReport(
        node=node, results=(result,), identity=Identity("boot"), started=0.0, seconds=0.0
    )


def preflight(config: RunConfig, answer: Answer) -> tuple[Nodes, dict[str, str], str]:
    cluster = Nodes(RunFolder(config.run_dir).preflight("7.0"), answer)
    event = asyncio.run(asking.run_preflight(config, cast(Cluster, cluster), ALLOCATION, NODES))
    return cluster, dict(event.bad), " ".join(event.warnings)


def test_a_silent_node_is_asked_once_more(run_config: RunConfig) -> None:
    def answer(node: str, step: int) -> Outcome | None:
        return None if (node, step) == ("n2", 1) else Outcome.PASS

    cluster, bad, warnings = preflight(run_config, answer)
    assert (cluster.asked(), bad, warnings) == ([NODES, ("n2",)], {}, "")
    for step in cluster.steps:  # the peers that it may ask are all nodes
        assert step.argv[-len(NODES) :] == NODES


def test_an_unclear_node_is_asked_once_more_and_no_more(run_config: RunConfig) -> None:
    def answer(node: str, _step: int) -> Outcome:
        return Outcome.UNKNOWN if node == "n3" else Outcome.PASS

    cluster, bad, warnings = preflight(run_config, answer)
    assert (cluster.asked(), bad) == ([NODES, ("n3",)], {})
    assert warnings == "unclear: memory: seen (n3)"


def test_the_second_answer_counts(run_config: RunConfig) -> None:
    def answer(node: str, step: int) -> Outcome:
        first = {"n4": Outcome.UNKNOWN}.get(node, Outcome.PASS)
        return first if step == 1 else Outcome.FAIL_NODE

    _, bad, _ = preflight(run_config, answer)
    assert bad == {"n4": "memory: seen"}


def test_what_many_cannot_answer_is_not_asked_again(run_config: RunConfig) -> None:
    cluster, bad, warnings = preflight(run_config, lambda _node, _step: Outcome.UNKNOWN)
    assert (cluster.asked(), bad) == ([NODES], {})
    assert "unclear" in warnings


def test_a_file_system_that_is_away_on_all_nodes_excludes_none(run_config: RunConfig) -> None:
    out_dir = RunFolder(run_config.run_dir).preflight("7.0")
    cluster = Nodes(out_dir, lambda *_: Outcome.FAIL_NODE, "disk", AWAY_UNIT)
    event = asyncio.run(asking.run_preflight(run_config, cast(Cluster, cluster), ALLOCATION, NODES))
    assert (event.bad, event.job_fault) == ({}, None)
    assert event.outage == "disk: seen (n1, n2, n3, n4, n5)"


@pytest.mark.parametrize("stays", [False, True])
def test_a_run_folder_that_cannot_be_used_is_waited_for(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    monkeypatch.setattr(asking, "OUTAGE_PAUSE_S", 0.0)
    monkeypatch.setattr(asking, "OUTAGE_S", 0.0 if stays else 900.0)
    out_dir = RunFolder(run_config.run_dir).preflight("7.0")
    out_dir.parent.mkdir(parents=True)
    out_dir.write_text("in the way")

    def away(_folder: Path, _nodes: object) -> dict[str, tuple[int, int]]:
        if not stays:
            out_dir.unlink(missing_ok=True)
            monkeypatch.setattr(asking, "stamps", stamps)
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(asking, "stamps", away)
    cluster = Nodes(out_dir, lambda *_: Outcome.PASS)
    event = asyncio.run(asking.run_preflight(run_config, cast(Cluster, cluster), ALLOCATION, NODES))
    told = "no node can be asked: [Errno 116] Stale file handle"
    assert (event.bad, event.job_fault) == ({}, told if stays else None)
    assert len(cluster.steps) == (0 if stays else 1)
    monkeypatch.setattr(asking, "stamps", away)
    tried = asyncio.run(asking.put_to_work(run_config, cast(Cluster, cluster), ALLOCATION, ("n2",)))
    assert (tried.answered, dict(tried.failed)) == (("n2",), {})


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (Outcome.PASS, {}),
        (Outcome.FAIL_NODE, {"n2": "memory: seen"}),
        (Outcome.UNKNOWN, {}),
        (None, {}),
    ],
)
def test_a_suspect_is_put_to_work(
    run_config: RunConfig, outcome: Outcome | None, failed: dict[str, str]
) -> None:
    out_dir = RunFolder(run_config.run_dir).attempt("7.0") / "tests"
    cluster = Nodes(out_dir, lambda _node, _step: outcome)
    event = asyncio.run(asking.put_to_work(run_config, cast(Cluster, cluster), ALLOCATION, ("n2",)))
    assert cluster.steps[0].env[ACTIVE_NODES] == "n2"
    assert (dict(event.failed), dict(event.silent)) == (failed, {})
    assert event.answered == (() if failed else ("n2",))


def test_a_report_of_an_earlier_question_is_no_answer(run_config: RunConfig) -> None:
    out_dir = RunFolder(run_config.run_dir).attempt("7.0") / "tests"
    write_report(out_dir, report("n2", Outcome.FAIL_NODE))
    cluster = Nodes(out_dir, lambda _node, _step: None)
    event = asyncio.run(asking.put_to_work(run_config, cast(Cluster, cluster), ALLOCATION, ("n2",)))
    assert (dict(event.failed), event.answered) == ({}, ("n2",))


class CutOff:
    """Steps start on some nodes only; the scheduler says what it thinks of all."""

    def __init__(self, deaf: set[str], down: set[str]) -> None:
        self._deaf = deaf
        self._down = down

    def step_command(self, request: StepRequest) -> Command:
        starts = not self._deaf & set(request.nodes)
        return Command(("true" if starts else "false",), os.environ)

    def node_conditions(self, nodes: Sequence[str]) -> dict[str, NodeCondition]:
        return {node: "down" if node in self._down else "up" for node in nodes}

    def rebooted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        return tuple(node for node in nodes if node == "n3")


def probe(
    deaf: set[str],
    down: set[str],
    nodes: tuple[str, ...],
    heard: Callable[[str], object] = print,
) -> NodesProbed:
    cluster = cast(Cluster, CutOff(deaf, down))
    return asyncio.run(asking.probe(cluster, nodes, ALLOCATION.batch_node, len(nodes), heard))


@pytest.mark.parametrize("suspects", [("n1", "n2"), ("n2",)])
def test_a_supervisor_whose_own_host_is_out_of_the_job(suspects: tuple[str, ...]) -> None:
    """Nothing that it starts succeeds: that speaks against no other node."""
    event = probe({"n1", "n2"}, {"n1"}, suspects)
    assert set(event.silent) == {"n1"}
    assert event.answered == ("n2",)


def test_a_node_that_is_silent_while_the_supervisors_own_answers() -> None:
    heard: list[str] = []
    event = probe({"n2"}, set(), ("n2", "n3"), heard.append)
    assert heard == ["n3", ALLOCATION.batch_node]
    assert (set(event.silent), event.answered) == ({"n2"}, ("n3",))
    assert event.rebooted == ("n3",)
    assert probe(set(), set(), ("n3",)).rebooted == (), "of one nobody has to ask which"


def test_a_scheduler_that_starts_nothing_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PROBE_PAUSE_S", 0.0)
    event = probe({"n1", "n2"}, set(), ("n2",))
    assert (dict(event.silent), event.answered) == ({}, ("n2",))


@pytest.mark.parametrize("suspects", [("n2",), ("n2", "n3", "n4", "n5", "n6")])
def test_a_supervisor_that_can_start_no_process_accuses_nobody(
    suspects: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asking, "PROBE_PAUSE_S", 0.0)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    event = probe(set(), set(), suspects)
    assert (dict(event.silent), event.answered) == ({}, suspects)


class Busy:
    """A controller that starts steps on ``limit`` nodes at most; the last of them live on."""

    def __init__(self, folder: Path, limit: int, dead: frozenset[str]) -> None:
        self._folder = folder
        self._limit = limit
        self.dead = dead
        self.down: frozenset[str] = frozenset()

    def step_command(self, request: StepRequest) -> Command:
        if len(request.nodes) > self._limit or self.dead & set(request.nodes):
            return Command(("false",), os.environ)
        script = f"""
        touch $$; n=$(ls | wc -l); sleep 0.1; rm $$; [ $n -le {self._limit} ]
        """
        return Command(("sh", "-c", f"cd '{self._folder}' && {script}"), os.environ)

    def node_conditions(self, nodes: Sequence[str]) -> dict[str, NodeCondition]:
        return {node: "down" if node in self.down else "up" for node in nodes}

    def rebooted(self, nodes: Sequence[str]) -> tuple[str, ...]:
        return ()


def probe_many(cluster: Busy, many: int) -> NodesProbed:
    nodes = tuple(f"n{number}" for number in range(1, many + 1))
    return asyncio.run(asking.probe(cast(Cluster, cluster), nodes, "n1", many, print))


def test_many_questions_are_not_asked_all_at_once(tmp_path: Path) -> None:
    """Else the controller would leave some unanswered, and good nodes were excluded for that."""
    event = probe_many(Busy(tmp_path, asking._AT_ONCE, frozenset({"n40"})), 60)
    assert set(event.silent) == {"n40"}
    assert len(event.answered) == 59


def test_so_many_silent_nodes_are_not_the_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asking, "PROBE_PAUSE_S", 0.0)
    monkeypatch.setattr(asking, "PROBE_TRIES", 2)
    cluster = Busy(tmp_path, 16, frozenset(f"n{number}" for number in range(11, 21)))
    assert (dict(probe_many(cluster, 20).silent)) == {}
    cluster.down = cluster.dead  # that the scheduler has lost them is their own fault
    assert set(probe_many(cluster, 20).silent) == cluster.dead


@pytest.mark.parametrize("one_machine", [False, True])
def test_pretend_nodes_are_not_compared(run_config: RunConfig, one_machine: bool) -> None:
    """They are one machine, and what differs is chance."""
    out_dir = RunFolder(run_config.run_dir).preflight("7.0")
    cluster = Nodes(out_dir, lambda _node, _step: Outcome.PASS)
    cluster.drivers["n5"], cluster.one_machine = "2", one_machine
    event = asyncio.run(asking.run_preflight(run_config, cast(Cluster, cluster), ALLOCATION, NODES))
    assert list(event.bad) == ([] if one_machine else ["n5"])
