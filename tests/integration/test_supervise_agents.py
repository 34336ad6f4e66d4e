"""Which agents stay, which end and which begin, when ranks go to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

import pytest
from stage.pretend_agents import PretendAgents

from relight.resilience.config import RunConfig
from relight.resilience.messages import Message
from relight.resilience.supervise import agent_step, agents
from relight.resilience.supervise.agents import Agents
from relight.resilience.supervise.channel import AgentLine
from relight.resilience.supervise.cluster import Allocation
from relight.resilience.supervise.slurm_place import node_list, variables

PATIENCE_S = 30.0
GET_READY: Message = {"type": "get_ready", "argv": ["python", "train.py"], "modules": ["torch"]}


@dataclass
class Scene:
    """Two nodes with two ranks each, n3 and n4 are spares."""

    agents: Agents
    site: PretendAgents
    heard: list[Message]

    async def start(self, *nodes: str) -> dict[int, str]:
        """The nodes of all ranks, once their agents are there."""
        assert await self.agents.bring_up(nodes)
        return {rank: line.node for rank, line in sorted(self.agents.lines.items())}

    async def stand_by(self, *nodes: str) -> None:
        """Until their agents have been told to get ready."""
        await self.agents.stand_by(nodes, GET_READY)
        await self.until_ready(*nodes)

    async def until_ready(self, *nodes: str) -> None:
        await self.until(lambda: all(len(self._ready(node)) == 2 for node in nodes))

    def _ready(self, node: str) -> list[Message]:
        there = (node, 0) in self.site.told and (node, 1) in self.site.told
        return self.site.told_to(node, "get_ready") if there else []

    async def lose(self, node: str) -> list[int]:
        """The ranks that were lost with a node."""
        await self.site.lose(node)
        ranks: list[int] = []
        here = len(self.connected())

        def all_seen() -> bool:
            ranks.extend(rank for rank, _ in self.agents.drop_silent())
            return len(self.connected()) == here - 2

        await self.until(all_seen)
        return ranks

    def connected(self) -> list[AgentLine]:
        return [line for step in self.agents._steps for line in step.lines.values()]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)


Play = Callable[[Callable[[Scene], Coroutine[object, object, None]]], None]


@pytest.fixture
def play(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Play:
    monkeypatch.setattr(agent_step, "BROKEN_LIMIT_S", 0.0)
    monkeypatch.setattr(agent_step, "SILENT_LIMIT_S", 600.0)  # they do not beat
    allocation = Allocation(
        job_id="7",
        restart_count=0,
        nodes=("n1", "n2", "n3", "n4"),
        batch_node="n1",
        supervisor_host="127.0.0.1",
    )
    mpi = getattr(request, "param", None)
    config = replace(run_config, nodes=2, tasks_per_node=2, spares=2, mpi=mpi)

    def whole(story: Callable[[Scene], Coroutine[object, object, None]]) -> None:
        async def played() -> None:
            site = PretendAgents()
            heard: list[Message] = []
            played_with = Agents(
                config, site.cluster, allocation, lambda _line, word: heard.append(word)
            )
            await story(Scene(played_with, site, heard))
            await played_with.close()
            await site.ended()

        asyncio.run(played())

    return whole


def test_a_spare_that_stood_by_takes_over_and_no_step_begins(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        assert not scene.agents.of_several_steps
        await scene.stand_by("n3", "n4")
        assert scene.site.told_to("n1", "get_ready") == [], "it has ranks"
        assert await scene.lose("n1") == [0, 1]
        where = await scene.start("n3", "n2")
        assert where == {0: "n3", 1: "n3", 2: "n2", 3: "n2"}
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n3", "n4")]
        assert scene.agents.of_several_steps
        assert len(scene.site.tokens) == 1, "they copy to each other"
        assert scene.site.told_to("n2", "quit") == scene.site.told_to("n4", "quit") == []

    play(story)


def test_a_spare_that_dies_is_no_loss(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        await scene.stand_by("n3", "n4")
        assert await scene.lose("n3") == []
        assert len(scene.agents.lines) == 4
        assert await scene.lose("n2") == [2, 3]
        assert await scene.start("n1", "n4") == {0: "n1", 1: "n1", 2: "n4", 3: "n4"}
        assert len(scene.site.steps) == 2

    play(story)


def test_without_spares_that_stood_by_a_step_begins_where_agents_lack(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        await scene.start("n1", "n3")
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n3",)]
        assert len(scene.site.told_to("n2", "quit")) == 2, "nobody wants it any more"
        await scene.start("n1", "n3")
        assert len(scene.site.steps) == 2, "a restart in place needs none"

    play(story)


def test_where_agents_were_lost_others_come_only_after_their_step_has_ended(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        await scene.lose("n2")
        first = scene.site.told["n1", 0]
        await scene.start("n1", "n2")
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n1", "n2")]
        assert {"type": "quit", "keep": True}.items() <= first[-1].items()

    play(story)


def test_a_spare_whose_agents_are_still_to_come_is_waited_for(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        await scene.agents.stand_by(["n3"], GET_READY)
        assert await scene.start("n1", "n3") == {0: "n1", 1: "n1", 2: "n3", 3: "n3"}
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n3",)]

    play(story)


def test_the_loss_of_another_spare_does_not_end_the_wait_for_one(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        come = scene.site.late["n4"] = asyncio.Event()
        await scene.agents.stand_by(["n3", "n4"], GET_READY)
        await scene.until_ready("n3")
        await scene.lose("n3")
        asyncio.get_running_loop().call_later(0.05, come.set)
        assert await scene.start("n1", "n4") == {0: "n1", 1: "n1", 2: "n4", 3: "n4"}

    play(story)


def test_a_signal_is_heard_while_no_agent_has_a_rank(play: Play) -> None:
    """Of a preemption Slurm tells the steps only, and only once."""

    async def story(scene: Scene) -> None:
        come = scene.site.late["n2"] = asyncio.Event()
        start = asyncio.create_task(scene.start("n1", "n2"))
        await scene.until(lambda: ("n1", 1) in scene.site.told and len(scene.connected()) == 2)
        scene.site.signal("n1")
        await scene.until(lambda: bool(scene.heard))
        assert scene.heard == [{"type": "signalled", "signal": "SIGTERM"}]
        come.set()
        await start

    play(story)


@pytest.mark.parametrize("play", ["pmix"], indirect=True)
def test_an_mpi_world_has_a_step_of_its_own_each_time(play: Play) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        await scene.start("n1", "n2")
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n1", "n2")]

    play(story)


def test_agents_that_do_not_come_are_told_by_their_nodes(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: Scene) -> None:
        await scene.start("n1", "n2")
        scene.site.dead.add("n3")
        await scene.agents.stand_by(["n3", "n4"], GET_READY)
        await scene.until_ready("n4")
        with monkeypatch.context() as impatient:
            impatient.setattr(agents, "CONNECT_LIMIT_S", 0.0)
            assert not await scene.agents.bring_up(("n1", "n3"))
        failed = scene.agents.start_failed(2)
        assert failed.missing == ("n3",)
        assert failed.detail == "2 of 4 agents connected"
        assert await scene.start("n1", "n4") == {0: "n1", 1: "n1", 2: "n4", 3: "n4"}
        scene.site.dead.clear()
        await scene.start("n1", "n3")
        assert scene.site.nodes_of_steps() == [("n1", "n2"), ("n3", "n4"), ("n3",)]

    play(story)


def test_a_node_that_dies_as_its_agents_are_started_is_asked_and_not_waited_for(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LATE_S", 0.5)
    monkeypatch.setattr(agents, "CONNECT_LIMIT_S", 3600.0)

    async def story(scene: Scene) -> None:
        scene.site.dead.add("n2")
        async with asyncio.timeout(PATIENCE_S):
            assert not await scene.agents.bring_up(("n1", "n2"))
        assert scene.agents.start_failed(1).missing == ("n2",)
        scene.site.dead.clear()
        come = scene.site.late["n3"] = asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, come.set)  # one that answers has its time
        assert await scene.start("n1", "n3") == {0: "n1", 1: "n1", 2: "n3", 3: "n3"}

    play(story)


def test_ranks_in_several_steps_find_themselves_in_one(run_config: RunConfig) -> None:
    """As a task of ``srun --nodelist=n1,n4 --ntasks-per-node=2`` does (Slurm 22.05)."""
    config = replace(run_config, nodes=2, tasks_per_node=2)
    assert variables(config, 3, ("n1", "n4")) == {
        "SLURM_PROCID": "3",
        "SLURM_NODEID": "1",
        "SLURM_GTIDS": "2,3",
        "SLURM_NTASKS": "4",
        "SLURM_NPROCS": "4",
        "SLURM_NNODES": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_STEP_NODELIST": "n1,n4",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    }


def test_nodes_are_named_as_slurm_does() -> None:
    nodes = ("n1", "n2", "n3", "login", "n09", "n10", "n4", "n3", "r1-ib", "r2-ib")
    assert node_list(nodes) == "n[1-3],login,n[09-10],n4,n3,r1-ib,r2-ib"
    many = tuple(f"nid{number:06}" for number in range(20_000))
    assert node_list(many) == "nid[000000-019999]"
