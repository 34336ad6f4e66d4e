"""The supervisor's watch over nodes: what it hears from their reports, and what it makes of it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.decide.events import (
    Event,
    NodeDegraded,
    NodesExamined,
    NodesWatched,
    RanksStraggled,
)
from relight.resilience.decide.state import State
from relight.resilience.health.preflight import write_report
from relight.resilience.health.result import CheckResult, NodeReport
from relight.resilience.health.result import Outcome as Answer
from relight.resilience.health.trends import LINK_DOWNS
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Evidence, Identity
from relight.resilience.ledger.store import Ledger
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Allocation, Cluster, Command, StepRequest
from relight.resilience.supervise.watch import Watch

NODES = ("n1", "n2", "n3", "n4", "n5")
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=NODES, batch_node="n1", supervisor_host="n1"
)
LIMIT_S = 30.0


class Quiet:
    """A cluster whose steps sleep, or end at once when they are to look once."""

    def __init__(self) -> None:
        self.steps: list[StepRequest] = []
        self.look: Callable[[], None] = lambda: None

    def step_command(self, request: StepRequest) -> Command:
        self.steps.append(request)
        once = request.argv[-1] == "0"
        if once:
            self.look()
        return Command(("true",) if once else ("sleep", "300"), os.environ)


class Watched:
    """A watch, what it has said, and the reports that nodes write for it."""

    def __init__(self, config: RunConfig) -> None:
        health = dataclasses.replace(config.health, during_s=0.05)
        self.config = dataclasses.replace(config, health=health)
        self.said: list[Event] = []
        self.cluster = Quiet()
        self.can_save = False
        self.out_dir = RunFolder(config.run_dir).watch("7.0")
        self.watch = Watch(
            self.config,
            cast(Cluster, self.cluster),
            ALLOCATION,
            self.said.append,
            lambda: NODES,
            lambda: 1,
            lambda: self.can_save,
        )

    def report(
        self,
        node: str,
        answer: Answer = Answer.PASS,
        downs: int = 0,
        out_dir: Path | None = None,
    ) -> None:
        result = CheckResult(
            check="infiniband",
            outcome=answer,
            evidence="seen",
            seconds=0.0,
            fault=Fault.NETWORK,
            counts={LINK_DOWNS: downs},
        )
        identity = Identity("boot-1")
        report = NodeReport(node=node, results=(result,), identity=identity, started=1.0, seconds=0)
        write_report(out_dir or self.out_dir, report)

    def until(self, condition: Callable[[], object], then: Callable[[], None]) -> None:
        """Watch until the condition holds, then do something, and watch until it holds no more."""

        async def live() -> None:
            task = asyncio.create_task(self.watch.run())
            try:
                async with asyncio.timeout(LIMIT_S):
                    while not condition():
                        await asyncio.sleep(0.01)
                    then()
                    while condition():
                        await asyncio.sleep(0.01)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(live())


@pytest.fixture
def watched(run_config: RunConfig) -> Watched:
    return Watched(run_config)


def test_a_bad_node_is_named_again_when_it_can_be_saved(watched: Watched) -> None:
    for node in NODES:
        watched.report(node, Answer.FAIL_NODE if node == "n2" else Answer.PASS)

    def can_save() -> None:
        watched.can_save = True

    watched.until(lambda: len(watched.said) == 1, can_save)
    assert watched.said == [
        NodeDegraded(node="n2", evidence="infiniband: seen", can_save=False),
        NodeDegraded(node="n2", evidence="infiniband: seen", can_save=True),
    ]
    step, look = watched.cluster.steps
    assert (step.nodes, step.tasks_per_node, step.argv[-1]) == (NODES, 1, "0.05")
    assert "--kill-on-bad-exit=1" in step.options, "a node whose process dies stays watched"
    others = ("n1", "n3", "n4", "n5")
    assert (look.nodes, look.argv[-1]) == (others, "0"), "nothing takes the place of its report"


def test_what_one_node_says_first_and_the_others_when_asked_is_not_the_nodes(
    watched: Watched,
) -> None:
    def all_have_it() -> None:
        for node in NODES:
            watched.report(node, Answer.FAIL_NODE)

    watched.cluster.look = all_have_it
    watched.report("n2", Answer.FAIL_NODE)
    watched.until(lambda: not watched.said, lambda: None)
    (event,) = watched.said
    assert isinstance(event, NodesWatched)
    assert "it is not the nodes" in event.warnings[0]


def test_a_report_in_the_same_tick_of_the_disks_clock_is_seen(watched: Watched) -> None:
    watched.report("n1", Answer.FAIL_NODE)

    def another() -> None:
        date = watched.out_dir.stat()
        watched.report("n2", Answer.WARN)
        os.utime(watched.out_dir, ns=(date.st_atime_ns, date.st_mtime_ns))

    watched.until(lambda: len(watched.said) == 1, another)
    assert watched.said[1:] == [NodesWatched(warnings=("infiniband: seen (n2)",))]


def test_a_link_that_goes_down_again_and_again_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))
    for node in NODES:
        before = RunFolder(watched.config.run_dir).preflight("7.0")
        watched.report(node, downs=4, out_dir=before)
        watched.report(node, downs=6 if node == "n3" else 4)
    watched.until(lambda: not watched.said, lambda: None)
    (event,) = watched.said
    assert isinstance(event, NodesWatched)
    assert event.warnings == ("links gone down: 2 more in 0.0 h, 0 on most nodes (n3)",)
    (record,) = Ledger(tmp_path / "ledger").records()
    assert isinstance(record, Evidence)
    assert (record.node, record.fault, record.weight) == ("n3", Fault.TREND, 0.3)
    assert record.identity == Identity("boot-1")


def test_the_last_look_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))
    watched.report("n4", Answer.FAIL_NODE)  # it was seen earlier, and says nothing now

    def last_look() -> None:
        for node in NODES:
            if node != "n4":
                watched.report(node, Answer.FAIL_NODE if node == "n5" else Answer.PASS)

    watched.cluster.look = last_look
    order = Finish(outcome=Outcome.FAILED, exit_code=1, cause="x", reason="x")
    events = asyncio.run(watched.watch.after(order, State(nodes=NODES)))
    assert events == [NodesExamined(bad={"n5": "infiniband: seen"})]
    (record,) = Ledger(tmp_path / "ledger").records()
    assert isinstance(record, Evidence)
    assert (record.node, record.fault, record.weight) == ("n5", Fault.NETWORK, 1.0)


def test_slow_steps_are_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))
    event = RanksStraggled(generation=1, ranks=(2,), node="n2", detail="slow", by_node=True)

    async def hear() -> None:
        watched.watch.straggled(event)

    asyncio.run(hear())
    (record,) = Ledger(tmp_path / "ledger").records()
    assert isinstance(record, Evidence)
    assert (record.node, record.lines) == ("n2", ("slow steps: slow",))
