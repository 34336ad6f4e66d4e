"""Who copies to whom, what is brought before a start, and what is told of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import CheckpointConfig, ComponentConfig, RunConfig
from relight.resilience.decide.events import Event
from relight.resilience.decide.storage_events import TierFailed
from relight.resilience.messages import Message
from relight.resilience.supervise.channel import AgentLine
from relight.resilience.supervise.partners import Partners
from relight.resilience.supervise.tier_copies import SavedShard, partners_of
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest

ONE = Incarnation("1.0", 1)


class Agent(AgentLine):
    """Notes what it is told."""

    def __init__(self, task: int, node: str) -> None:
        super().__init__({"task": task, "local_task": task % 2, "node": node, "pid": 1})
        self.rank = task
        self.orders: list[Message] = []

    def send(self, message: Message) -> None:
        self.orders.append(message)

    def told(self, kind: str) -> list[Message]:
        return [order for order in self.orders if order["type"] == kind]


class Attempt:
    """Two ranks on each node, and whoever gives them orders."""

    def __init__(self, *, partner: bool = True) -> None:
        self.events: list[Event] = []
        self.took: list[tuple[int, SavedShard]] = []
        checkpoint = CheckpointConfig(
            directory=Path("/ck"), tier="/dev/shm", tier_bytes=800, partner=partner
        )
        self.config = RunConfig(
            run_id="run", name="run", run_dir=Path("/run"), command=("true",),
            working_dir=Path("/"), nodes=2, tasks_per_node=2, checkpoint=checkpoint,
        )  # fmt: skip
        self.partners = Partners(
            self.config, self.events.append, lambda task, shard: self.took.append((task, shard))
        )
        self.agents: dict[int, Agent] = {}

    async def start(self, *nodes: str, then: Callable[[], None] = lambda: None) -> None:
        """A generation on these nodes; ``then`` happens while it is prepared."""
        names = [node for node in nodes for _ in range(2)]
        self.agents = {task: Agent(task, node) for task, node in enumerate(names)}
        prepared = self.partners.prepare(1, nodes, self.agents, lambda node: f"at-{node}")
        waiting = asyncio.create_task(prepared)
        await asyncio.sleep(0)
        then()
        await asyncio.wait_for(waiting, 5)

    def say(self, task: int, kind: str, **more: object) -> None:
        self.partners.heard(self.agents[task], {"type": kind, **more})

    def save(self, step: int) -> None:
        """All ranks save, and copies get to their partners."""
        for task in self.agents:
            self.partners.saved(step, ONE, task)
            self.say((task + 2) % 4 // 2 * 2, "took", step=step, writer="1.0.g1", rank=task)


class _Receipt:
    incarnation = ONE


class _Chosen:
    """What matters here of a manifest."""

    step, world_size, receipts = 20, 4, (_Receipt(),) * 4


def test_a_partner_is_half_of_the_list_away() -> None:
    nodes = tuple(f"n{number}" for number in range(1, 6))
    assert partners_of(nodes) == dict(zip(nodes, ("n3", "n4", "n5", "n1", "n2"), strict=True))
    assert partners_of(nodes[:2]) == {"n1": "n2", "n2": "n1"}
    assert partners_of(nodes[:1]) == {}
    assert partners_of(nodes, (1, 4)) == {"n2": "n4", "n3": "n5", "n4": "n2", "n5": "n3"}
    alone = (ComponentConfig(name="a"), ComponentConfig(name="b"))
    config = replace(Attempt().config, components=alone)
    assert config.tier_share_bytes(2) == 800, "there are no copies"


def test_nodes_hear_where_their_partners_take_copies() -> None:
    attempt = Attempt()
    asyncio.run(attempt.start("n1", "n2"))
    depot = {"type": "depot", "tier": "/dev/shm/relight-run/n2", "share_bytes": 200}
    assert (attempt.agents[2].orders, attempt.agents[3].orders) == ([depot], [])
    attempt.say(2, "depot", port=77)
    for task in (0, 1):
        assert attempt.agents[task].orders[-1] == {"type": "partner", "host": "at-n2", "port": 77}
    assert attempt.agents[2].told("partner") == []


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
def test_nothing_happens_on_one_node_or_without_the_key(nodes: tuple[str, ...]) -> None:
    attempt = Attempt(partner=len(nodes) == 1)
    asyncio.run(attempt.start(*nodes))
    assert all(agent.orders == [] for agent in attempt.agents.values())


def test_a_lost_node_s_shard_is_copied_by_its_partner() -> None:
    attempt = Attempt()
    asyncio.run(attempt.start("n1", "n2"))
    attempt.save(10)
    task, shard = attempt.took[-1]
    attempt.partners.drain(shard, task)
    (order,) = attempt.agents[1].told("drain")  # the node's second agent, for a second rank
    assert (order["tier"], order["directory"]) == ("/dev/shm/relight-run/n1", "/ck")
    assert (order["step"], order["writer"], order["rank"]) == (10, "1.0.g1", 3)
    assert attempt.agents[0].told("drain") == []


def test_shards_are_brought_to_the_node_in_the_place_of_a_lost_one() -> None:
    attempt = Attempt()

    def answer() -> None:
        attempt.say(2, "depot", port=88)
        for task in (0, 1):
            (order,) = attempt.agents[task].told("bring")
            assert (order["host"], order["port"]) == ("at-n3", 88)
            assert (order["tier"], order["rank"]) == ("/dev/shm/relight-run/n1", task + 2)
        attempt.say(2, "took", step=20, writer="1.0.g1", rank=2)
        attempt.say(1, "not_sent", step=20, writer="1.0.g1", rank=3, reason="full")

    async def scene() -> None:
        await attempt.start("n1", "n2")
        attempt.save(20)
        attempt.partners.chosen = cast(Manifest, _Chosen())
        await attempt.start("n1", "n2")
        assert attempt.agents[0].told("bring") == [], "all have what they need"
        await attempt.start("n1", "n3", then=answer)

    asyncio.run(scene())
    (failed,) = attempt.events
    assert isinstance(failed, TierFailed)
    assert (failed.rank, failed.node, failed.partner) == (3, "n3", None)
    assert failed.reason == "its shard of step 20 is not brought from n1: full"
    assert attempt.partners.moved((0, 1, 2)) == (2,)
    asyncio.run(attempt.start("n3", "n1", "n4"))
    assert attempt.partners.moved((3, 4)) == (3, 4), "also in a world of another size"


def test_a_depot_that_is_not_opened_holds_no_start_up() -> None:
    attempt = Attempt()

    async def scene() -> None:
        await attempt.start("n1", "n2")
        attempt.save(20)
        attempt.partners.chosen = cast(Manifest, _Chosen())
        no_depot = partial(attempt.say, 2, "depot", port=None, reason="no process")
        await attempt.start("n1", "n3", then=no_depot)

    asyncio.run(scene())
    told = [event.reason for event in attempt.events if isinstance(event, TierFailed)]
    assert told == [
        *2 * ["no process"],
        *2 * ["its shard of step 20 is not brought from n1: no process"],
    ]


@pytest.mark.parametrize("lost", [True, False])
def test_what_does_not_come_is_given_up_with_its_cause(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lost:
        monkeypatch.setattr("relight.resilience.supervise.partners.BRING_LIMIT_S", 0.0)
    attempt = Attempt()

    def lose() -> None:
        if lost:
            del attempt.agents[2], attempt.agents[3]

    async def scene() -> None:
        await attempt.start("n1", "n2")
        attempt.save(20)
        attempt.partners.chosen = cast(Manifest, _Chosen())
        await attempt.start("n1", "n3", then=lose)

    asyncio.run(scene())
    told = {event.reason for event in attempt.events if isinstance(event, TierFailed)}
    slow = "the network, or one of the nodes, is too slow"
    why = "agents of a node are lost" if lost else slow
    assert told == {f"its shard of step 20 is not brought from n1: {why}"}
    assert len(attempt.agents[0].told("bring_no_more")) == 1


def test_what_depots_say_costs_no_more_on_many_nodes() -> None:
    attempt = Attempt()
    nodes = tuple(f"n{number}" for number in range(600))
    asyncio.run(attempt.start(*nodes))
    began_s = time.process_time()
    for task in range(0, 1200, 2):
        attempt.say(task, "depot", port=77)
    assert time.process_time() - began_s < 1, "a loop over all agents for each word takes 4 s"
    assert all(len(agent.told("partner")) == 1 for agent in attempt.agents.values())


def test_older_shards_are_forgotten_and_trouble_is_told_once() -> None:
    attempt = Attempt()

    async def scene() -> None:
        await attempt.start("n1", "n2")
        attempt.save(20)
        attempt.partners.committed(30)
        attempt.partners.chosen = cast(Manifest, _Chosen())
        await attempt.start("n1", "n3")  # nothing to bring, so nothing is waited for

    asyncio.run(scene())
    for step, writer in ((25, "1.0.g0"), (30, "1.0.g1"), (40, "1.0.g1")):
        attempt.say(1, "not_sent", step=step, writer=writer, rank=1, reason="it is full")
        assert len(attempt.events) == (step > 25), "of ranks that are over nobody waits for one"
    attempt.say(2, "took", step=50, writer="1.0.g1", rank=1)
    attempt.say(2, "depot", port=None, reason="it has ended")
    told = [
        (event.rank, event.partner) for event in attempt.events if isinstance(event, TierFailed)
    ]
    assert told == [(1, "n3"), (0, "n3"), (1, "n3")]
