"""A start of ranks: what is lost while something is waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import StartRanks
from relight.resilience.decide.events import Event, StartFailed
from relight.resilience.supervise import ranks as ranks_module
from relight.resilience.supervise.agents import Agents
from relight.resilience.supervise.cluster import Allocation, Cluster
from relight.resilience.supervise.partners import Partners
from relight.resilience.supervise.ranks import Ranks


class TwoAgents:
    world_size = 2
    of_several_steps = False

    def __init__(self) -> None:
        self.lines = {0: SimpleNamespace(node="n1"), 1: SimpleNamespace(node="n2")}

    @property
    def all_connected(self) -> bool:
        return len(self.lines) == self.world_size

    async def bring_up(self, nodes: tuple[str, ...]) -> bool:
        return True

    async def free_port(self) -> int | None:
        return 1

    def start_failed(self, generation: int) -> StartFailed:
        return StartFailed(generation=generation, missing=("n2",), detail="lost")


def test_no_rank_is_left_out_whose_agent_is_lost_while_the_command_is_chosen(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents, told = TwoAgents(), list[Event]()

    def slow(config: RunConfig, *, started_before: bool) -> tuple[str, ...]:
        agents.lines.pop(1)  # as the tick does, while a shared disk is read
        return config.command

    monkeypatch.setattr(ranks_module, "command_of", slow)
    nodes = ("n1", "n2")
    allocation = Allocation(
        job_id="7", restart_count=0, nodes=nodes, batch_node="n1", supervisor_host="127.0.0.1"
    )
    cluster = cast(Cluster, SimpleNamespace(node_address=lambda node: "127.0.0.1"))
    partners = Partners(run_config, told.append, print)
    ranks = Ranks(run_config, cluster, allocation, told.append, print, print, partners, tuple)
    ranks._agents = cast(Agents, agents)
    ranks.expect(1)
    order = StartRanks(generation=1, nodes=nodes, delay_s=0.0, committed_step=-1, reason="x")
    asyncio.run(ranks.start(order, None, None))
    assert told == [StartFailed(generation=1, missing=("n2",), detail="lost")]
