"""What a restart waits for: saves that all ranks have made, and nodes are still copying."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from relight.launcher.clusters.local import JOB_ID, NODES, RESTART, LocalCluster
from relight.resilience.config import RunConfig
from relight.resilience.decide.events import Event, RankLost
from relight.resilience.supervise.agents import Agents
from relight.resilience.supervise.cluster import Allocation, Cluster
from relight.resilience.supervise.draining import Draining
from relight.resilience.supervise.partners import Partners
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.supervisor import Supervisor


@pytest.fixture
def draining() -> Draining:
    one = Draining(2)
    one.saved(10, 0, durable=False)
    one.saved(10, 1, durable=False)
    return one


def test_under_way_until_all_is_copied(draining: Draining) -> None:
    assert draining.under_way
    draining.saved(10, 0, durable=True)
    assert draining.under_way
    draining.saved(10, 1, durable=True)
    assert not draining.under_way


def test_what_only_some_ranks_have_saved_can_become_no_checkpoint() -> None:
    one = Draining(2)
    one.saved(10, 0, durable=False)
    assert not one.under_way
    one.saved(10, 1, durable=True)  # there was no room in its node's tier
    assert one.under_way


def test_nothing_is_expected_of_a_lost_node_or_after_a_fault(draining: Draining) -> None:
    draining.saved(10, 1, durable=True)
    draining.lost(1)
    assert draining.under_way, "its part is there"
    draining.lost(0)
    assert not draining.under_way
    other = Draining(1)
    other.saved(3, 0, durable=False)
    other.failed(3)
    assert not other.under_way


def test_nobody_waits_for_a_copy_that_a_later_save_has_overtaken(draining: Draining) -> None:
    draining.saved(20, 0, durable=True)
    assert draining.under_way
    draining.saved(20, 1, durable=True)
    assert not draining.under_way


def test_the_wait_ends_when_somebody_ends_the_job_meanwhile(draining: Draining) -> None:
    left_s = iter((120.0, 120.0, 0.0))

    async def told_to_stop() -> None:
        waiting = asyncio.create_task(draining.settle(lambda: next(left_s)))
        for _ in range(2):
            await asyncio.sleep(0)
            draining.saved(10, 0, durable=False)
        await waiting

    asyncio.run(told_to_stop())
    assert list(left_s) == []
    assert draining.under_way


def test_the_wait_ends_with_the_last_copy_or_its_limit(draining: Draining) -> None:
    async def copied_and_not() -> None:
        waiting = asyncio.create_task(draining.settle(lambda: 60.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        draining.saved(10, 0, durable=True)
        draining.saved(10, 1, durable=True)
        await waiting

        draining.saved(20, 0, durable=False)
        draining.saved(20, 1, durable=False)
        await draining.settle(lambda: 0.0)

    asyncio.run(copied_and_not())
    assert draining.under_way


def test_nothing_is_waited_for_once_the_directory_is_lost(draining: Draining) -> None:
    async def taken_over() -> None:
        waiting = asyncio.create_task(draining.settle(lambda: 60.0))
        await asyncio.sleep(0)
        draining.abandon()
        await waiting

    asyncio.run(taken_over())
    assert not draining.under_way


def test_a_copy_takes_the_place_of_what_a_lost_node_has_saved(draining: Draining) -> None:
    draining.copied(10, 1, by=0)
    assert draining.rescue() == []
    draining.lost(1)
    assert draining.under_way
    assert draining.rescue() == [(10, 1, 0)]
    assert draining.rescue() == [], "it is ordered once"
    draining.saved(10, 0, durable=True)
    draining.saved(10, 1, durable=True)
    assert (draining.under_way, draining.rescued(10)) == (False, (1,))


def test_a_node_that_goes_after_its_programs_have_ended_is_lost_too(
    draining: Draining, run_config: RunConfig
) -> None:
    draining.copied(10, 1, by=0)
    told: list[Event] = []
    allocation = Allocation(
        job_id="7", restart_count=0, nodes=("n1",), batch_node="n1", supervisor_host="n1"
    )
    partners = Partners(run_config, told.append, print)
    nobody = cast(Cluster, None)
    ranks = Ranks(run_config, nobody, allocation, told.append, print, print, partners, tuple)
    silent = SimpleNamespace(drop_silent=lambda: iter([(1, "its agent was silent")]))
    ranks._agents = cast(Agents, silent)
    for rank in ranks.look_for_silence():
        draining.lost(rank)
    assert (draining.rescue(), told) == ([(10, 1, 0)], [])


def test_a_program_that_does_not_end_is_lost_and_its_agent_goes_on_copying(
    run_config: RunConfig,
) -> None:
    run_config.run_dir.mkdir()
    env = {JOB_ID: "local-1", RESTART: "0", NODES: "n1"}
    supervisor = Supervisor(run_config, LocalCluster(run_config, env), 1)
    supervisor._saves._draining.saved(10, 0, durable=False)
    supervisor._emit(RankLost(generation=1, rank=0, node="n1", detail="not ended after SIGKILL"))
    assert supervisor._saves._draining.under_way
    supervisor._decisions.close()


def test_what_is_over_is_forgotten() -> None:
    one = Draining(2)
    for step in range(10):
        for rank in (0, 1):
            one.copied(step, rank, by=1 - rank)
            one.saved(step, rank, durable=False)
        for rank in (0, 1):
            one.saved(step, rank, durable=True)
        assert one.rescued(step) == ()
    assert (len(one._copies), len(one._rescued)) == (2, 0)


def test_a_copy_is_of_no_use_when_its_node_is_lost_too_or_others_have_not_saved() -> None:
    one = Draining(3)
    one.saved(10, 0, durable=False)
    one.saved(10, 1, durable=False)
    one.copied(10, 1, by=2)
    one.lost(1)
    assert one.rescue() == []
    one.saved(10, 2, durable=False)
    one.lost(2)
    assert one.rescue() == []
    assert not one.under_way
