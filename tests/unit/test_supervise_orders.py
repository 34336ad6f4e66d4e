"""A request for an allocation that the end of the run overtakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import (
    ExcludeNode,
    ProbeNodes,
    RequestAllocation,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    Event,
    ExclusionForgotten,
    NodesProbed,
    ProbeUnanswered,
)
from relight.resilience.supervise import orders as module
from relight.resilience.supervise.cluster import Allocation, Cluster, ClusterUnavailable, Restart
from relight.resilience.supervise.orders import Orders
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.partners import Partners
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.saves import Saves

EARLY = RequestAllocation(exclude=(), reason="the time limit is near", early=True)


def test_a_scheduler_that_is_away_longer_than_the_grace_is_asked_on(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kills nobody while it is away."""
    monkeypatch.setattr(module, "_SILENCE_PAUSE_S", 0.01)
    answers: list[Exception | None] = [ClusterUnavailable("no answer"), None]

    def new_allocation(exclude: tuple[str, ...], mode: str) -> Restart:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return Restart("successor", "8")

    async def story() -> Event:
        told: asyncio.Queue[Event] = asyncio.Queue()
        orders = Orders(
            run_config,
            cast(Cluster, SimpleNamespace(new_allocation=new_allocation)),
            cast(Allocation, None),
            cast(Ranks, None),
            cast(Saves, None),
            cast(Pace, None),
            told.put_nowait,
            asyncio.create_task,
            lambda: 1.0,  # long past
            lambda: asyncio.sleep(0),
        )
        orders.carry_out(EARLY)
        return await asyncio.wait_for(told.get(), 10)

    assert asyncio.run(story()) == AllocationArranged(mode="successor", job_id="8")


def told_at_the_end(config: RunConfig, ask: Callable[[], Restart]) -> list[Event]:
    """What is known once a run that ends has heard of its request; ``ask`` is the scheduler."""
    asked = threading.Event()

    def new_allocation(exclude: tuple[str, ...], mode: str) -> Restart:
        asked.set()
        return ask()

    async def story() -> list[Event]:
        told: list[Event] = []

        async def nothing() -> None:
            pass

        orders = Orders(
            config,
            cast(Cluster, SimpleNamespace(new_allocation=new_allocation)),
            cast(Allocation, None),
            cast(Ranks, None),
            cast(Saves, None),
            cast(Pace, None),
            told.append,
            asyncio.create_task,
            lambda: None,
            nothing,
        )
        orders.carry_out(EARLY)
        await asyncio.to_thread(asked.wait, 10)
        async with asyncio.timeout(10):
            await orders.answered()
        return told

    return asyncio.run(story())


def test_its_answer_is_known_before_the_supervisor_ends(run_config: RunConfig) -> None:
    slow = threading.Event()

    def ask() -> Restart:
        slow.wait(0.2)
        return Restart("successor", "8")

    assert told_at_the_end(run_config, ask) == [AllocationArranged(mode="successor", job_id="8")]


@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_a_silent_scheduler_is_not_asked_again(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    monkeypatch.setattr(module, "_SILENCE_PAUSE_S", 0.2)
    asks: list[None] = []
    slow = threading.Event()

    def ask() -> Restart:
        asks.append(None)
        slow.wait(pause_s)
        raise ClusterUnavailable("no answer")

    (refused,) = told_at_the_end(run_config, ask)
    assert isinstance(refused, AllocationRefused)
    assert refused.transient
    assert len(asks) == 1


def test_who_has_asked_for_nothing_does_not_wait(run_config: RunConfig) -> None:
    orders = Orders(
        run_config,
        cast(Cluster, None),
        cast(Allocation, None),
        cast(Ranks, None),
        cast(Saves, None),
        cast(Pace, None),
        lambda event: None,
        lambda work: asyncio.get_running_loop().create_task(work),
        lambda: None,
        lambda: asyncio.sleep(0),
    )
    asyncio.run(orders.answered())


def test_an_exclusion_that_the_ledger_does_not_take_is_told(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ledger").touch()
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "mini")
    monkeypatch.setenv("RELIGHT_LEDGER", str(tmp_path / "ledger"))

    async def story() -> Event:
        told: asyncio.Queue[Event] = asyncio.Queue()
        orders = Orders(
            run_config,
            cast(Cluster, None),
            cast(Allocation, SimpleNamespace(attempt="7.0")),
            cast(Ranks, None),
            cast(Saves, None),
            cast(Pace, None),
            told.put_nowait,
            asyncio.create_task,
            lambda: None,
            cast(Callable[[], Any], None),
        )
        orders.carry_out(ExcludeNode(node="n1", cause="preflight", reason="burnt"))
        async with asyncio.timeout(60):
            return await told.get()

    event = asyncio.run(story())
    assert isinstance(event, ExclusionForgotten)
    assert (event.node, "takes no record" in event.reason) == ("n1", True)


def test_an_order_to_stop_is_not_for_the_ranks_that_start_next(run_config: RunConfig) -> None:
    """A rank fails as the last one ends: both orders are given in one breath."""

    async def story() -> list[Event]:
        told: list[Event] = []
        allocation = Allocation(
            job_id="7",
            restart_count=0,
            nodes=("n1",),
            batch_node="n1",
            supervisor_host="127.0.0.1",
        )
        partners = Partners(run_config, told.append, print)
        cluster = cast(Cluster, None)
        ranks = Ranks(run_config, cluster, allocation, told.append, print, print, partners, tuple)
        orders = Orders(
            run_config,
            cluster,
            allocation,
            ranks,
            cast(Saves, None),
            cast(Pace, None),
            told.append,
            asyncio.create_task,
            lambda: None,
            lambda: asyncio.sleep(0),
        )
        ranks.expect(1)
        orders.carry_out(StopRanks(reason="x"))
        orders.carry_out(
            StartRanks(generation=2, nodes=("n1",), delay_s=60.0, committed_step=-1, reason="x")
        )
        for _ in range(9):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(story()) == []


def test_a_suspect_that_has_answered_is_not_among_those_that_nobody_waits_for(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> Event:
        told: asyncio.Queue[Event] = asyncio.Queue()

        async def probe(*asked: Any) -> NodesProbed:
            *_, heard = asked
            heard("n1")
            await asyncio.sleep(60)
            return NodesProbed(answered=("n1", "n2"), silent={})

        monkeypatch.setattr(module, "probe", probe)
        monkeypatch.setattr(module, "_AT_ONCE_S", 0.01)
        orders = Orders(
            run_config,
            cast(Cluster, None),
            cast(Allocation, SimpleNamespace(batch_node="n1", nodes=("n1", "n2", "n3"))),
            cast(Ranks, None),
            cast(Saves, None),
            cast(Pace, None),
            told.put_nowait,
            asyncio.create_task,
            lambda: None,
            lambda: asyncio.sleep(0),
        )
        orders.carry_out(ProbeNodes(nodes=("n1", "n2"), reason="x"))
        async with asyncio.timeout(60):
            return await told.get()

    assert asyncio.run(story()) == ProbeUnanswered(nodes=("n2",), waited_s=0.01)
