"""What a run that ends has left in the tiers of nodes on which it has no agent any more."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from relight.storage.tier_folder import run_folder

from ..config import RunConfig
from ..decide.state import State
from . import processes
from .cluster import Cluster, StepRequest

_log: Final = logging.getLogger(__name__)
_LIMIT_S: Final = 10.0  # a node that does not answer keeps nothing from its end


async def remove_leftovers(
    config: RunConfig, cluster: Cluster, state: State, with_agents: Collection[str], left_s: float
) -> None:
    """Let a short step remove it: agents do so at their end, unless they were killed."""
    nodes = tuple(node for node in state.healthy if node not in with_agents)
    begun = state.generation > 0
    if config.checkpoint.tier is None or not begun or not nodes or left_s < _LIMIT_S:
        return
    folder = run_folder(Path(config.checkpoint.tier), config.run_id)
    request = StepRequest(
        name="tier",
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(sys.executable, "-P", "-m", "relight.storage.tier_folder", str(folder)),
        env={},
    )
    try:
        command = await asyncio.to_thread(cluster.step_command, request)
        code = await processes.run(command, None, _LIMIT_S)
    except OSError as error:
        _log.warning("%s stays on %s: %s", folder, ", ".join(nodes), error)
    else:
        if code != 0:
            _log.warning("%s may stay on %s: no command starts there", folder, ", ".join(nodes))
