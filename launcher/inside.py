"""Commands inside the allocation of a run, beside its ranks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relight.counted import counted
from relight.errors import UsageError
from relight.resilience.place import place_of

from .clusters.local_front import allocation_of
from .clusters.slurm import commands
from .clusters.slurm.client import SlurmClient, SlurmMissing, without_job_variables
from .presence import read_facts
from .queue import Queue
from .runs import StoredRun, refuse_sweep
from .status import Presence, status


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Where commands of a run go: its job (None on this machine), and its nodes, ranks first.

    ``components``: of a heterogeneous job, the nodes of each.
    """

    job_id: str | None
    nodes: tuple[str, ...]
    components: tuple[tuple[str, ...], ...] = ()
    working_dir: Path
    env: Mapping[str, str]


def look_inside(run: StoredRun) -> Inside:
    """The place where a run is now.

    Raises:
        UsageError: it holds no nodes.
        ClusterUnavailable, SlurmMissing: as the client.
    """
    refuse_sweep(run)
    facts = read_facts(run, Queue())
    if facts.presence is not Presence.RUNNING:
        raise UsageError(f"run {run.run_id} holds no nodes now ({status(facts).state})")
    one, nodes = status(facts), status(facts).nodes
    job_id = facts.job_id if run.plan.cluster == "slurm" else allocation_of(run.folder)
    components: tuple[tuple[str, ...], ...] = ()
    if job_id is not None:
        job = SlurmClient().job(job_id)
        components, allocated = tuple(one.nodes for one in job.components), job.all_nodes
        active = [node for node in nodes if node in allocated]
        nodes = tuple(dict.fromkeys((*active, *allocated)))
    env = {"RELIGHT_RUN_ID": run.run_id, "RELIGHT_ATTEMPT": one.attempt or ""}
    working_dir = run.plan.config.working_dir
    if run.plan.config.program == "script":
        working_dir = Path.cwd()
    return Inside(
        job_id=job_id,
        nodes=nodes,
        components=components if len(components) > 1 else (),
        working_dir=working_dir,
        env=env,
    )


def chosen(run: StoredRun, place: Inside, node: str | None, rank: int | None) -> tuple[str, ...]:
    """The nodes that a user means: one by its name, that of a rank, or all.

    Raises:
        UsageError: the run holds no such node, or has no such rank.
    """
    if rank is not None:
        config = run.plan.config
        number = place_of(config, rank).node if 0 <= rank < config.world_size else len(place.nodes)
        if number >= len(place.nodes):
            raise UsageError(f"run {run.run_id} has {counted(config.world_size, 'rank')}, from 0")
        return (place.nodes[number],)
    if node is None:
        return place.nodes
    if node not in place.nodes:
        raise UsageError(f"{node!r} is none of the run's nodes: {', '.join(place.nodes)}")
    return (node,)


def become(
    place: Inside, nodes: Sequence[str], words: Sequence[str], *, terminal: bool
) -> NoReturn:
    """Turns this process into the command; its exit code is then that of the command.

    Raises:
        UsageError: there is no such command on this machine.
    """
    env = {**without_job_variables(os.environ), **place.env}
    if place.job_id is None:
        os.chdir(place.working_dir)
        argv = tuple(words)
    else:
        argv = _srun(place, place.job_id, nodes, words, terminal=terminal)
    if shutil.which(argv[0]) is None:
        if place.job_id is not None:
            raise SlurmMissing("srun is not on this machine's PATH: there is no Slurm here")
        raise UsageError(f"there is no command {argv[0]!r}")
    os.execvpe(argv[0], argv, env)


def _srun(
    place: Inside, job_id: str, nodes: Sequence[str], words: Sequence[str], *, terminal: bool
) -> tuple[str, ...]:
    """One srun; of a heterogeneous job with a part for each component that has any of the nodes."""
    if not place.components:
        argv = commands.inside(job_id, nodes, place.working_dir, terminal=terminal)
        return (*argv, *words)
    if ":" in words:
        raise UsageError("to srun a ':' begins another component: write sh -c '... : ...'")
    parts: list[str] = []
    for number, component in enumerate(place.components):
        if ours := [node for node in nodes if node in component]:
            srun, *options = commands.inside(job_id, ours, place.working_dir, terminal=terminal)
            parts += [":"] if parts else [srun]
            parts += [f"--het-group={number}", *options, *words]
    return tuple(parts)
