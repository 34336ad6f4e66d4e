"""Questions to nodes, each answered by a step on them: the preflight, and the probe of suspects."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Final

from ..config import RunConfig
from ..decide.events import NodesProbed, PreflightFinished
from ..health.collect import read_reports
from ..health.compare import compare
from ..health.preflight import ACTIVE_BUDGET_S, ACTIVE_NODES
from ..health.requalify import nodes_to_test, record_releases
from ..health.verdict import judge
from ..run_folder import RunFolder
from . import processes
from .cluster import Allocation, Cluster, StepRequest

_log: Final = logging.getLogger(__name__)
PROBE_LIMIT_S: Final = 12.0
PROBE_TRIES: Final = 10
PROBE_PAUSE_S: Final = 10.0
_MANY: Final = 4  # more suspects than that are asked all at once first
_LAUNCH_S: Final = 10.0  # what a step may take to start, on top of the budget of its checks


async def run_preflight(
    config: RunConfig, cluster: Cluster, allocation: Allocation, nodes: tuple[str, ...]
) -> PreflightFinished:
    """Run the checks on all nodes at once; a node without a report is unclear, not bad."""
    folder = RunFolder(config.run_dir)
    out_dir = folder.preflight(allocation.attempt)
    out_dir.mkdir(parents=True, exist_ok=True)
    tested = await asyncio.to_thread(nodes_to_test, config, nodes)
    request = StepRequest(
        name="preflight",
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(
            sys.executable,
            "-m",
            "relight.resilience.health.preflight",
            str(config.run_dir),
            str(out_dir),
            str(time.time()),
            *nodes,
        ),
        env={ACTIVE_NODES: ",".join(tested)},
        output=out_dir / "step.log",
    )
    limit_s = config.health.budget_s + (ACTIVE_BUDGET_S if tested else 0.0) + _LAUNCH_S
    code = await processes.run(cluster.step_command(request), out_dir / "step.log", limit_s)
    if code != 0:
        _log.warning("the preflight step ended with %s", "no end" if code is None else code)
    reports = compare(await asyncio.to_thread(read_reports, out_dir, nodes))
    await asyncio.to_thread(record_releases, config.run_id, reports)
    judgement = judge(reports, config.health.on_unknown)
    return PreflightFinished(
        bad=dict(judgement.bad), job_fault=judgement.job_fault, warnings=judgement.warnings
    )


async def probe(cluster: Cluster, nodes: tuple[str, ...], control: str) -> NodesProbed:
    """Let each suspect run a command; one that cannot is silent, with the evidence.

    ``control`` is the supervisor's own node, which lives: when a command fails there too, it is the
    scheduler that does not start commands, and no answer counts.
    """
    if len(nodes) > _MANY and await _all_answer(cluster, nodes):
        return NodesProbed(answered=nodes, silent={})
    for _ in range(PROBE_TRIES):
        conditions = await asyncio.to_thread(cluster.node_conditions, nodes)
        verdicts = await asyncio.gather(
            *(_probe_one(cluster, node, conditions.get(node) == "down") for node in nodes)
        )
        silent = {
            node: evidence for node, evidence in zip(nodes, verdicts, strict=True) if evidence
        }
        if not silent or await _probe_one(cluster, control, False) is None:
            answered = tuple(node for node in nodes if node not in silent)
            return NodesProbed(answered=answered, silent=silent)
        _log.warning("no command starts on %s either: the scheduler does not answer", control)
        await asyncio.sleep(PROBE_PAUSE_S)
    return NodesProbed(answered=nodes, silent={})


async def _all_answer(cluster: Cluster, nodes: tuple[str, ...]) -> bool:
    return await processes.run(cluster.step_command(_probe(nodes)), None, PROBE_LIMIT_S) == 0


def _probe(nodes: tuple[str, ...]) -> StepRequest:
    return StepRequest(
        name="probe", nodes=nodes, tasks_per_node=1, cpus_per_task=1, argv=("true",), env={}
    )


async def _probe_one(cluster: Cluster, node: str, known_down: bool) -> str | None:
    if known_down:
        return "its agents are gone and the scheduler says that the node is down"
    code = await processes.run(cluster.step_command(_probe((node,))), None, PROBE_LIMIT_S)
    if code == 0:
        return None
    how = f"gave no answer in {PROBE_LIMIT_S:.0f} s" if code is None else f"failed with code {code}"
    return f"its agents are gone and a command sent to it {how}"
