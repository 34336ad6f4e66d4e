"""Checks of nodes by hand: of this one, or of those that a run holds now."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from relight.errors import UsageError
from relight.resilience.config import OnUnknown, RunConfig
from relight.resilience.health.check import Candidate, Check, Finding
from relight.resilience.health.collect import arrived, read_reports
from relight.resilience.health.compare import compare
from relight.resilience.health.isolate import run_checks
from relight.resilience.health.pairs import Localisation, localise
from relight.resilience.health.preflight import (
    ACTIVE_BUDGET_S,
    ACTIVE_NODES,
    examine,
    node_name,
)
from relight.resilience.health.result import NodeReport, Outcome
from relight.resilience.supervise import tied
from relight.resilience.supervise.cluster import StepRequest

from .clusters.local import LocalCluster
from .clusters.local_front import allocation_of
from .clusters.slurm import commands, components
from .clusters.slurm.client import SlurmClient
from .layers import Layer, merged
from .pairs import PairSteps, end_all
from .plan import plan
from .presence import read_facts
from .queue import Queue
from .run_creation import submitter
from .runs import StoredRun
from .spec_file import build_spec, default_layers
from .status import Presence, status
from .variables import substitute

_LAUNCH_S: Final = 10.0
_POLL_S: Final = 0.1
_LEAVE_S: Final = 3.0


def config_here(directory: Path) -> RunConfig:
    """A run as the files with defaults have it, which would save its checkpoints in ``directory``.

    Raises:
        SpecError: a file with defaults is wrong.
    """
    asked = {"command": ["true"], "checkpoint": {"directory": str(directory.absolute())}}
    layer = merged([*default_layers(), Layer(asked, {})])
    layer = substitute(layer, os.environ, "preflight-0")
    return plan(build_spec(layer.value, layer.places), submitter("preflight"), "local").config


def examine_here(directory: Path, *, active: bool) -> tuple[NodeReport, OnUnknown]:
    """This node's report, as if a run were to save its checkpoints in ``directory``, and what an
    unclear answer shall mean.

    Raises:
        SpecError: a file with defaults is wrong.
    """
    config = config_here(directory)
    candidate = Candidate(node_name(), config, 0.0)
    # Asked of a process, as all checks: the directory may be on a file system that is away.
    (there,) = run_checks((_THERE,), candidate, _THERE.timeout_s)
    if there.outcome is not Outcome.PASS:
        health = replace(config.health, skip=(*config.health.skip, "disk", "disk_rate"))
        candidate = replace(candidate, config=replace(config, health=health))
    report = examine(candidate, time.time(), active=active)
    if there.outcome is not Outcome.PASS:
        report = replace(report, results=(there, *report.results))
    compared = compare({report.node: report})[report.node] or report
    return compared, config.health.on_unknown


def _is_there(candidate: Candidate) -> Finding:
    directory = candidate.config.checkpoint.directory
    if directory.is_dir():
        return Finding(Outcome.PASS, f"{directory} is there")
    text = f"{directory} is not there, and nothing is made by hand: make it, or correct --directory"
    if directory.exists():
        text = f"{directory} is no directory: correct --directory"
    return Finding(Outcome.FAIL_JOB, text)


_THERE: Final = Check(
    name="disk",
    reads="whether the directory is there",
    threshold="it is",
    worst=Outcome.FAIL_JOB,
    typical_s=0.01,
    timeout_s=20.0,
    run=_is_there,
)


@dataclass(slots=True)
class Examination:
    """A step on a run's nodes, and what has come of it so far."""

    config: RunConfig
    limit_s: float
    nodes: tuple[str, ...]
    out_dir: Path
    process: subprocess.Popen[bytes]

    def reports(self) -> Iterator[NodeReport]:
        """Each node's report as it comes, until all are there, the step ends, or time is over."""
        missing = set(self.nodes)
        deadline = time.monotonic() + self.limit_s
        over = False
        while missing and not over:
            over = self.process.poll() is not None or time.monotonic() > deadline
            nodes = sorted(missing)
            come = nodes if over else arrived(self.out_dir, nodes)
            for node, report in read_reports(self.out_dir, come).items():
                if report is not None:
                    missing.discard(node)
                    yield report
            time.sleep(0 if over else _POLL_S)


@contextmanager
def examination(run: StoredRun, *, active: bool) -> Iterator[Examination]:
    """Begin to look at the nodes of a run; the step ends with the context. The pretend nodes of a
    local run are this machine, which is looked at once.

    Raises:
        UsageError: the run holds no nodes now.
        ClusterUnavailable, SlurmRefused, SlurmMissing: as the client.
    """
    held = _held_nodes(run)
    nodes, out_dir = held.nodes, held.out_dir
    program = (sys.executable, "-P", "-m", "relight.resilience.health.preflight")
    request = StepRequest(
        name="preflight",
        nodes=nodes,
        tasks_per_node=1,
        cpus_per_task=1,
        argv=(*program, str(run.folder.root), str(out_dir), str(time.time()), *nodes),
        env={},  # srun inherits ours
        output=out_dir / "step.log",
    )
    config = run.plan.config
    if held.job_id is None:
        argv = LocalCluster(config).step_command(request).argv
    else:
        request = replace(request, options=(f"--jobid={held.job_id}",))
        argv = commands.step(request, None)
        if len(held.components) > 1:
            argv = components.step(request, held.components)
    limit_s = config.health.budget_s + (ACTIVE_BUDGET_S if active else 0.0) + _LAUNCH_S
    env = os.environ | {ACTIVE_NODES: ",".join(nodes) if active else ""}
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(tied.to_me(argv), env=env, stdin=nowhere, stdout=nowhere)
    try:
        yield Examination(config, limit_s, nodes, out_dir, process)
        with suppress(subprocess.TimeoutExpired):  # who has told all is about to end
            process.wait(_LEAVE_S)
    finally:
        end_all([process])


def examine_pairs(run: StoredRun) -> Localisation:
    """All-reduce between the nodes of a run under Slurm, in pairs.

    Raises:
        UsageError: the run holds no nodes now, or only this machine, or has ended meanwhile.
        ClusterUnavailable, SlurmRefused, SlurmMissing: as the client.
    """
    held = _held_nodes(run)
    if held.job_id is None:
        raise UsageError(f"the nodes of run {run.run_id} are this machine: there is no network")
    found = localise(held.components[0], PairSteps(held.job_id, held.out_dir).measure)
    if None in found.rates.values() and read_facts(run, Queue()).presence is not Presence.RUNNING:
        raise UsageError(f"run {run.run_id} ended during the test, which says nothing of its nodes")
    return found


@dataclass(frozen=True, slots=True)
class _Held:
    """The job that holds a run's nodes (None on this machine), and a new folder for what they
    say. ``components`` are the nodes of each kind; pairs are made of the first alone."""

    job_id: str | None
    components: tuple[tuple[str, ...], ...]
    out_dir: Path

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(chain(*self.components))


def _held_nodes(run: StoredRun) -> _Held:
    facts = read_facts(run, Queue())
    one = status(facts)
    here = run.plan.cluster == "local" and allocation_of(run.folder) is None
    if facts.presence is not Presence.RUNNING or not facts.job_id or (here and not one.nodes):
        raise UsageError(
            f"run {run.run_id} holds no nodes now ({one.state}); `relight preflight` alone looks "
            "at this one"
        )
    job_id = None if here else allocation_of(run.folder) or facts.job_id
    parts = [one.nodes[:1]]
    if job_id is not None:
        parts = [part.nodes for part in SlurmClient().job(job_id).components]
    out_dir = run.folder.root / "preflight" / str(time.time_ns())
    out_dir.mkdir(parents=True)
    return _Held(job_id, tuple(parts), out_dir)
