"""A run that ends without agents leaves nothing in the tiers of its nodes."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

from relight.resilience.config import RunConfig
from relight.resilience.decide.state import State
from relight.resilience.supervise.cluster import Cluster, Command, StepRequest
from relight.resilience.supervise.tier_leftovers import remove_leftovers
from relight.storage.tier_folder import hold, tier_folder


class Nodes:
    """Two nodes of this machine, each of which carries a step out."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def step_command(self, request: StepRequest) -> Command:
        self.asked += request.nodes
        return Command(request.argv, os.environ)


def test_what_killed_agents_have_left_goes_and_that_of_the_others_stays(
    run_config: RunConfig, tmp_path: Path
) -> None:
    tier, nodes = tmp_path / "tier", Nodes()
    tiers = replace(run_config, checkpoint=replace(run_config.checkpoint, tier=str(tier)))
    left, held = (tier_folder(tier, tiers.run_id, node) for node in ("n1", "n2"))
    other = tier_folder(tier, "other", "n1")
    for folder in (left, other):
        os.close(hold(folder))
    (left / "000000000001").mkdir()

    def end(state: State) -> None:
        asyncio.run(remove_leftovers(tiers, cast(Cluster, nodes), state, {"n2"}, 60.0))

    agent = hold(held)
    end(State(nodes=("n1", "n2")))
    assert left.exists(), "no rank was ever started: nothing is asked"
    end(State(nodes=("n1", "n2"), generation=1))
    os.close(agent)
    assert [path.name for path in left.parent.iterdir() if path.is_dir()] == ["n2"]
    assert (other.exists(), nodes.asked) == (True, ["n1"])
