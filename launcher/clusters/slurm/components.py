"""The components of a heterogeneous job: whose nodes they are, and steps over several (pure).

A step is one srun with a part for each component, so that tasks are numbered through all of them,
and MPI programs have one COMM_WORLD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from relight.resilience.supervise.cluster import StepRequest

from . import commands
from .hostlist import expand_nodes

Nodes = tuple[str, ...]


def held_components(env: Mapping[str, str]) -> tuple[Nodes, ...]:
    """The nodes of each component, from the environment of its batch script; none of another job.

    Raises:
        KeyError, ValueError: the environment is damaged.
    """
    size = int(env.get("SLURM_HET_SIZE") or 0)
    return tuple(expand_nodes(env[f"SLURM_JOB_NODELIST_HET_GROUP_{n}"]) for n in range(size))


def step(request: StepRequest, components: Sequence[Nodes]) -> commands.Argv:
    """An srun step on nodes of some components; their order is that of the job."""
    words: list[str] = []
    for part in _parts(request, components):
        words += [":", *commands.step(part, None)[1:]] if words else commands.step(part, None)
    return tuple(words)


def _parts(request: StepRequest, components: Sequence[Nodes]) -> Iterator[StepRequest]:
    for number, nodes in enumerate(components):
        ours = tuple(node for node in nodes if node in request.nodes)
        if not ours:
            continue
        # Each part opens the file of the output for itself.
        options = (*request.options, f"--het-group={number}", "--open-mode=append")
        part = replace(request, nodes=ours, components=(), options=options)
        if request.components:
            kind = request.components[number]
            tasks, cpus = kind.tasks_per_node, kind.cpus_per_task
            part = replace(part, tasks_per_node=tasks, cpus_per_task=cpus)
        yield part
