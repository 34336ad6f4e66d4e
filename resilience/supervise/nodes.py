"""Questions to nodes, each answered by a step on them: the preflight, and the probe of suspects."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.events import NodesProbed, PreflightFinished
from ..health.collect import read_reports, stamps
from ..health.compare import compare
from ..health.preflight import ACTIVE_BUDGET_S, ACTIVE_NODES
from ..health.requalify import nodes_to_test, record_releases
from ..health.result import NodeReport
from ..health.verdict import Judgement, is_shared, judge, unclear_nodes
from ..health.watch import LAST_LOOK_S
from ..run_folder import RunFolder
from . import processes
from .cluster import Allocation, Cluster, StepRequest

_log: Final = logging.getLogger(__name__)
OUTAGE_S: Final = 900.0  # for the disk of the run folder to come back
OUTAGE_PAUSE_S: Final = 10.0
PROBE_LIMIT_S: Final = 12.0
PROBE_TRIES: Final = 10
PROBE_PAUSE_S: Final = 10.0
_OUT: Final = "no command starts on it, and the scheduler says that it is down"
_DOWN: Final = "it is silent, and the scheduler says that the node is down"
_MANY: Final = 4  # more suspects than that are asked by one step on all of them first
_AT_ONCE: Final = 16  # steps, each of which keeps the scheduler's controller busy
_LOOK_POLL_S: Final = 2.0
_LAUNCH_S: Final = 10.0  # what a step may take to start, on top of the budget of its checks


async def run_preflight(
    config: RunConfig, cluster: Cluster, allocation: Allocation, nodes: tuple[str, ...]
) -> PreflightFinished:
    """Run the checks on all nodes at once, and once more on the few that were unclear.

    A node without a report is unclear, not bad. A run folder that cannot be used is waited for.
    """
    give_up = time.monotonic() + OUTAGE_S
    while True:
        try:
            judgement = await _judged(config, cluster, allocation, nodes)
            break
        except OSError as error:
            why = f"no node can be asked: {error}"
            if time.monotonic() >= give_up:
                return PreflightFinished(bad={}, job_fault=why)
            _log.warning("%s; it is tried again", why)
            await asyncio.sleep(OUTAGE_PAUSE_S)
    return PreflightFinished(
        bad=dict(judgement.bad),
        doubted=dict(judgement.doubted),
        job_fault=judgement.job_fault,
        warnings=judgement.warnings,
        silent=judgement.silent,
        outage=judgement.outage,
    )


async def _judged(
    config: RunConfig, cluster: Cluster, allocation: Allocation, nodes: tuple[str, ...]
) -> Judgement:
    out_dir = RunFolder(config.run_dir).preflight(allocation.attempt)
    tested = await asyncio.to_thread(nodes_to_test, config, nodes)
    reports = await _examine(config, cluster, nodes, tested, out_dir, nodes)
    if again := unclear_nodes(reports):
        _log.info("%s: unclear, asked once more", ", ".join(again))
        tested_again = tuple(node for node in again if node in tested)
        second = await _examine(config, cluster, again, tested_again, out_dir, nodes)
        reports |= {node: report for node, report in second.items() if report is not None}
    # Pretend nodes are one machine, which is no slower than itself.
    one_machine = len(nodes) > 1 and len({*map(cluster.node_address, nodes)}) == 1
    compared = reports if one_machine else _beside_their_like(allocation, reports)
    await asyncio.to_thread(record_releases, config.run_id, compared)
    return judge(compared, config.health.on_unknown)


def _beside_their_like(
    allocation: Allocation, reports: Mapping[str, NodeReport | None]
) -> dict[str, NodeReport | None]:
    """Compared with each other: the nodes of another component are other machines."""
    compared: dict[str, NodeReport | None] = {}
    for nodes in allocation.components or (tuple(reports),):
        compared |= compare({node: reports[node] for node in nodes if node in reports})
    return compared


async def put_to_work(
    config: RunConfig, cluster: Cluster, allocation: Allocation, nodes: tuple[str, ...]
) -> NodesProbed:
    """All checks and active tests on suspects; a node that cannot be tested has not failed."""
    out_dir = RunFolder(config.run_dir).attempt(allocation.attempt) / "tests"
    try:
        found = await _examine(config, cluster, nodes, nodes, out_dir, nodes)
        reports = _beside_their_like(allocation, found)
    except OSError as error:
        _log.warning("%s: not put to work: %s", ", ".join(nodes), error)
        return NodesProbed(answered=nodes, silent={})
    failed = dict(judge(reports, "warn").bad)
    answered = tuple(node for node in nodes if node not in failed)
    return NodesProbed(answered=answered, silent={}, failed=failed)


async def look_at_once(
    config: RunConfig,
    cluster: Cluster,
    allocation: Allocation,
    nodes: tuple[str, ...],
    enough: float = 1.0,
) -> dict[str, NodeReport]:
    """The cheap checks now, on all nodes at the same time: the reports of those that answer.

    It ends once more than this share of the nodes has answered, and when the step does.
    """
    out_dir = RunFolder(config.run_dir).look(allocation.attempt)
    program = ("relight.resilience.health.watch", str(config.run_dir), str(out_dir), "0")
    known = await asyncio.to_thread(stamps, out_dir, nodes)
    looking = _step(cluster, "look", nodes, program, {}, out_dir, LAST_LOOK_S + _LAUNCH_S)
    step = asyncio.create_task(looking)
    try:
        while not step.done():
            await asyncio.wait((step,), timeout=_LOOK_POLL_S)
            found = await asyncio.to_thread(stamps, out_dir, nodes)
            if sum(found[node] != known.get(node) for node in found) > enough * len(nodes):
                break
    finally:
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
    if not step.cancelled():
        step.result()
    reports = await asyncio.to_thread(read_reports, out_dir, nodes, known)
    return {node: report for node, report in reports.items() if report is not None}


async def _examine(
    config: RunConfig,
    cluster: Cluster,
    nodes: tuple[str, ...],
    tested: tuple[str, ...],
    out_dir: Path,
    peers: tuple[str, ...],
) -> dict[str, NodeReport | None]:
    """Each node's report; ``tested`` of them are put to work, ``peers`` may be asked by them."""
    program = (
        "relight.resilience.health.preflight",
        *(str(config.run_dir), str(out_dir), str(time.time())),
        *peers,
    )
    env = {ACTIVE_NODES: ",".join(tested)}
    limit_s = config.health.budget_s + (ACTIVE_BUDGET_S if tested else 0.0) + _LAUNCH_S
    known = await asyncio.to_thread(stamps, out_dir, nodes)
    await _step(cluster, "preflight", nodes, program, env, out_dir, limit_s)
    return await asyncio.to_thread(read_reports, out_dir, nodes, known)


async def _step(
    cluster: Cluster,
    name: str,
    nodes: tuple[str, ...],
    program: tuple[str, ...],
    env: Mapping[str, str],
    out_dir: Path,
    limit_s: float,
) -> None:
    """A module on each node, until it has ended everywhere or the time is over."""
    await asyncio.to_thread(out_dir.mkdir, parents=True, exist_ok=True)
    request = StepRequest(
        name=name,
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(sys.executable, "-P", "-m", *program),
        env=env,
        output=out_dir / "step.log",
    )
    command = await asyncio.to_thread(cluster.step_command, request)
    code = await processes.run(command, out_dir / "step.log", limit_s)
    if code != 0:
        _log.warning("the step %s ended with %s", name, "no end" if code is None else code)


async def probe(
    cluster: Cluster,
    nodes: tuple[str, ...],
    control: str,
    of_nodes: int,
    heard: Callable[[str], object],
) -> NodesProbed:
    """As :func:`_answers`; of several that were lost at once those that have booted are named."""
    found = await _answers(cluster, nodes, control, of_nodes, heard)
    if len(nodes) == 1 or not found.answered:
        return found
    return replace(found, rebooted=await asyncio.to_thread(cluster.rebooted, found.answered))


async def _answers(
    cluster: Cluster,
    nodes: tuple[str, ...],
    control: str,
    of_nodes: int,
    heard: Callable[[str], object],
) -> NodesProbed:
    """Let each suspect run a command; one that cannot is silent, with the evidence.

    ``heard`` is told of each that answers, as soon as it does.
    ``control`` is the supervisor's own node, which lives: when a command fails there too, it is the
    scheduler that does not start commands, and no answer counts. Nor does one when so many of the
    job's ``of_nodes`` nodes are silent that it is not the nodes; only the scheduler's word that a
    node is down counts then.
    """
    for _ in range(PROBE_TRIES):
        if len(nodes) > _MANY and await _all_answer(cluster, nodes):
            return NodesProbed(answered=nodes, silent={})
        asked = tuple(dict.fromkeys((*nodes, control)))
        conditions = await asyncio.to_thread(cluster.node_conditions, asked)
        down = {node: _DOWN for node in nodes if conditions.get(node) == "down"}
        rest = tuple(node for node in nodes if node not in down)
        unheard = await _silent(cluster, rest, of_nodes, heard)
        silent = down | unheard
        alone = await _ask(cluster, control, heard) is not None if silent else False
        if alone and conditions.get(control) == "down":  # what it was told of others counts nothing
            others = tuple(node for node in nodes if node != control)
            return NodesProbed(answered=others, silent={control: _OUT})
        if not alone and not _too_many(unheard, of_nodes):
            answered = tuple(node for node in nodes if node not in silent)
            return NodesProbed(answered=answered, silent=silent)
        who = f"{control} either" if alone else f"{len(unheard)} of {of_nodes} nodes"
        _log.warning("no command starts on %s: the scheduler does not answer", who)
        await asyncio.sleep(PROBE_PAUSE_S)
    return NodesProbed(answered=nodes, silent={})


async def _all_answer(cluster: Cluster, nodes: tuple[str, ...]) -> bool:
    try:
        return await processes.run(cluster.step_command(_probe(nodes)), None, PROBE_LIMIT_S) == 0
    except OSError:  # each is asked next, and says why
        return False


async def _silent(
    cluster: Cluster, nodes: tuple[str, ...], of_nodes: int, heard: Callable[[str], object]
) -> dict[str, str]:
    """Those that do not answer, with the evidence; once they are too many no more are asked.

    Out of many a silent one is asked again: it may have been the load of the questions.
    """
    for _ in range(2 if len(nodes) > _MANY else 1):
        silent: dict[str, str] = {}
        for start in range(0, len(nodes), _AT_ONCE):
            some = nodes[start : start + _AT_ONCE]
            answers = await asyncio.gather(*(_ask(cluster, node, heard) for node in some))
            silent |= {node: fault for node, fault in zip(some, answers, strict=True) if fault}
            if _too_many(silent, of_nodes):
                return silent
        nodes = tuple(silent)
    return silent


def _too_many(silent: Collection[str], of_nodes: int) -> bool:
    """A few are asked all at once, which loads no scheduler: their silence is their own."""
    return len(silent) > _MANY and is_shared(len(silent), of_nodes)


def _probe(nodes: tuple[str, ...]) -> StepRequest:
    return StepRequest(
        name="probe", nodes=nodes, tasks_per_node=1, cpus_per_task=1, argv=("true",), env={}
    )


async def _ask(cluster: Cluster, node: str, heard: Callable[[str], object]) -> str | None:
    """None, or how it did not answer."""
    try:
        code = await processes.run(cluster.step_command(_probe((node,))), None, PROBE_LIMIT_S)
    except OSError as error:  # the supervisor's own node fails then, too: nobody is accused
        return f"it is silent, and no command can be sent to it: {error.strerror}"
    if code == 0:
        heard(node)
        return None
    how = f"gave no answer in {PROBE_LIMIT_S:.0f} s" if code is None else f"failed with code {code}"
    return f"it is silent, and a command sent to it {how}"
