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
from relight.resilience.supervise import watch as watching
from relight.resilience.supervise import watch_step
from relight.resilience.supervise.cluster import Allocation, Cluster, Command, StepRequest
from relight.resilience.supervise.watch import Watch

NODES = ("n1", "n2", "n3", "n4", "n5")
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=NODES, batch_node="n1", supervisor_host="n1"
)
LIMIT_S = 120.0


class Quiet:
    """A cluster whose steps sleep, or end at once when they are to look once."""

    def __init__(self) -> None:
        self.steps: list[StepRequest] = []
        self.look: Callable[[], None] = lambda: None
        self.watch: Callable[[], None] = lambda: None
        self.looks_s, self.watches_s = "0", "300"

    def step_command(self, request: StepRequest) -> Command:
        self.steps.append(request)
        once = request.argv[-1] == "0"
        (self.look if once else self.watch)()
        return Command(("sleep", self.looks_s if once else self.watches_s), os.environ)


class Watched:
    """A watch, what it has said, and the reports that nodes write for it."""

    def __init__(self, config: RunConfig) -> None:
        health = dataclasses.replace(config.health, during_s=0.05)
        self.config = dataclasses.replace(config, health=health)
        self.said: list[Event] = []
        self.nodes: tuple[str, ...] = NODES
        self.cluster = Quiet()
        self.cluster.look = self.others_are_well
        self.can_save = False
        self.out_dir = RunFolder(config.run_dir).watch("7.0")
        self.look_dir = RunFolder(config.run_dir).look("7.0")
        self.watch = Watch(
            self.config,
            cast(Cluster, self.cluster),
            ALLOCATION,
            self.said.append,
            lambda: self.nodes,
            lambda: 1,
            lambda: self.can_save,
        )

    def others_are_well(self) -> None:
        for node in self.nodes:
            self.report(node, out_dir=self.look_dir)

    @property
    def degraded(self) -> list[NodeDegraded]:
        return [event for event in self.said if isinstance(event, NodeDegraded)]

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

    watched.until(lambda: len(watched.degraded) == 1, can_save)
    asking = NodesWatched(warnings=("n2 fails: infiniband: seen; the other nodes are asked",))
    assert watched.said == [
        asking,
        NodesWatched(warnings=()),
        NodeDegraded(node="n2", evidence="infiniband: seen", can_save=False),
        NodeDegraded(node="n2", evidence="infiniband: seen", can_save=True),
    ]
    step, look = watched.cluster.steps
    assert (step.nodes, step.tasks_per_node, step.argv[-1]) == (NODES, 1, "0.05")
    assert "--kill-on-bad-exit=1" in step.options, "a node whose process dies stays watched"
    others = ("n1", "n3", "n4", "n5")
    assert (look.nodes, look.argv[-1]) == (others, "0"), "nothing takes the place of its report"


def test_what_others_say_when_asked_counts_until_they_have_looked_themselves(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their watch, which found nothing since, has no news to tell."""
    monkeypatch.setattr(watching, "LOOK_S", 0.5)

    def all_have_it() -> None:
        for node in NODES:
            watched.report(node, Answer.FAIL_NODE, out_dir=watched.look_dir)

    watched.cluster.look = all_have_it
    watched.report("n2", Answer.FAIL_NODE)
    watched.until(lambda: not watched.degraded, lambda: None)
    shared = watched.said[1]
    assert isinstance(shared, NodesWatched)
    assert "it is not the nodes" in shared.warnings[0]
    assert [event.node for event in watched.degraded] == ["n2"]


def test_one_that_does_not_answer_keeps_nobody_waiting(watched: Watched) -> None:
    def most_answer() -> None:
        for node in ("n1", "n3", "n4", "n5", "n6"):
            watched.report(node, out_dir=watched.look_dir)

    watched.nodes = (*NODES, "n6", "n7")
    watched.cluster.look, watched.cluster.looks_s = most_answer, "300"
    watched.report("n2", Answer.FAIL_NODE)
    watched.until(lambda: not watched.degraded, lambda: None)
    assert [event.node for event in watched.degraded] == ["n2"]


def test_a_look_that_cannot_be_made_is_no_word_for_the_others(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while Slurm's controller is away: nor would ranks start elsewhere."""
    monkeypatch.setattr(watching, "_ASK_AGAIN_S", 0.05)

    def at_last() -> None:
        if len(watched.cluster.steps) > 3:
            for node in NODES:
                watched.report(node, Answer.FAIL_NODE, out_dir=watched.look_dir)

    watched.cluster.look = at_last
    watched.report("n2", Answer.FAIL_NODE)
    watched.until(lambda: len(watched.said) < 2, lambda: None)
    asking, shared = watched.said
    assert asking == NodesWatched(
        warnings=("n2 fails: infiniband: seen; the other nodes are asked",)
    )
    assert isinstance(shared, NodesWatched)
    assert "it is not the nodes" in shared.warnings[0]


def test_a_node_on_which_the_watch_dies_is_named_and_the_others_are_watched(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.cluster.watches_s = "0"

    def some_look() -> None:
        if len(watched.cluster.steps) < 2:
            return
        monkeypatch.setattr(watch_step, "_PATIENCE_S", 0.5)
        watched.cluster.watches_s = "300"
        for node in NODES:
            if node != "n3":
                watched.report(node)

    watched.cluster.watch = some_look
    watched.until(lambda: not watched.said, lambda: None)
    first, second = watched.cluster.steps
    assert (first.options, second.options) == (
        ("--kill-on-bad-exit=1",),
        ("--kill-on-bad-exit=0",),
    ), "where it dies at once the others would never end their first look"
    (event,) = watched.said
    assert isinstance(event, NodesWatched)
    assert event.warnings[0].startswith("not watched, no look there has ended: n3; see ")


def test_a_report_in_the_same_tick_of_the_disks_clock_is_seen(watched: Watched) -> None:
    watched.report("n1", Answer.WARN)

    def another() -> None:
        date = watched.out_dir.stat()
        watched.report("n2", Answer.WARN)
        os.utime(watched.out_dir, ns=(date.st_atime_ns, date.st_mtime_ns))

    watched.until(lambda: len(watched.said) == 1, another)
    both = ("infiniband: seen (n1, n2)",)
    assert watched.said[1:] == [NodesWatched(warnings=both)]


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
                answer = Answer.FAIL_NODE if node == "n5" else Answer.PASS
                watched.report(node, answer, out_dir=watched.look_dir)

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
