"""Nodes that a new job had better not get: the ledger's word, merged with the user's own.

Never so many that the job could not start, and never more than a quarter of the partition's usable
nodes (one where it has few): then it is not the nodes. A node that the user asks for by name is not
excluded, since such a job would wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relight.counted import counted
from relight.errors import RelightError, UsageError
from relight.resilience.ledger.apart import default_ledger
from relight.resilience.ledger.record import Record
from relight.resilience.ledger.score import Standing, seen_by, standings

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.hostlist import expand_nodes
from .clusters.slurm.parse import can_be_allocated

if TYPE_CHECKING:
    from .spec import JobSpec  # it brings pydantic, which relight sbatch does without

MOST_OF_PARTITION: Final = 4  # one in this many


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoidance:
    """``exclude`` is the whole list for sbatch, the user's own nodes included; None leaves it as it
    is. ``notes`` tell the user what was done and what was not."""

    exclude: str | None = None
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """``avoided`` are excluded; ``kept`` are known to be bad and may be used all the same, each for
    its reason."""

    avoided: tuple[Standing, ...]
    kept: tuple[tuple[Standing, str], ...]


def avoid_known_bad(spec: JobSpec) -> tuple[JobSpec, Avoidance]:
    """The spec with the ledger's nodes excluded, from all components alike."""
    keys = {name.lstrip("-").replace("_", "-"): name for name in spec.sbatch}
    asked = {name: str(spec.sbatch[key]) for name, key in keys.items()}
    together = Avoidance()
    for partition, needed in spec.resources.nodes_by_partition.items():
        one = avoidance_of(asked, partition, needed)
        together = Avoidance(
            exclude=one.exclude or together.exclude,
            nodes=(*together.nodes, *one.nodes),
            notes=(*together.notes, *one.notes),
        )
        asked |= {} if one.exclude is None else {"exclude": one.exclude}
    if together.exclude is None:
        return spec, together
    options = {**spec.sbatch, keys.get("exclude", "exclude"): together.exclude}
    return spec.model_copy(update={"sbatch": options}), together


def avoidance_of(asked: Mapping[str, str], partition_name: str | None, needed: int) -> Avoidance:
    """What a job with these sbatch options should exclude; asks Slurm only when the ledger holds
    any node. ``needed`` nodes must be left.

    A ledger or a Slurm that does not answer costs the exclusion, never the submission.
    """
    try:
        found = standings(_records(), time.time())
        accused = [one for one in found if one.avoided]
        if not accused:
            return Avoidance()
        lists = {
            name: _expand(name, asked[name]) for name in ("exclude", "nodelist") if name in asked
        }
        partition = _partition(SlurmClient(timeout_s=2.0, pauses_s=()), partition_name)
    except RelightError as error:
        return Avoidance(notes=(f"known bad nodes are not excluded: {error}",))
    choice = choose(
        [one for one in accused if (one.cluster, one.node) in partition],
        {node for (_, node), state in partition.items() if can_be_allocated(state)},
        excluded=lists.get("exclude", ()),
        required=lists.get("nodelist", ()),
        needed=needed,
    )
    names = tuple(one.node for one in choice.avoided)
    exclude = ",".join(filter(None, (asked.get("exclude"), *names))) if names else None
    return Avoidance(exclude=exclude, nodes=names, notes=_notes(choice))


def _records() -> list[Record]:
    """What the ledger holds. The user's own lies beside the runs, where a submission writes anyway:
    to start a process that may hang in its place would take longer than all else."""
    apart = default_ledger()
    return apart.records() if apart.ledger.shared else apart.ledger.records()


def choose(
    accused: Sequence[Standing],
    usable: Collection[str],
    excluded: Collection[str],
    required: Collection[str],
    needed: int,
) -> Choice:
    """Which of the accused (worst first) to avoid (pure).

    ``excluded`` and ``required`` are the user's own lists; ``needed`` nodes must be left.
    """
    most = max(len(usable) // MOST_OF_PARTITION, 1)
    spare = len(set(usable) - set(excluded)) - needed
    avoided: list[Standing] = []
    kept: list[tuple[Standing, str]] = []
    for one in accused:
        if one.node in excluded:
            continue
        costs = one.node in usable  # one that is down now costs nothing, and may come back
        if one.node in required:
            why = "it is asked for by name"
        elif costs and spare < 1:
            why = f"fewer than the {counted(needed, 'node')} that the job needs would be left"
        elif costs and most < 1:
            there = counted(len(usable), "usable node")
            why = f"more than a quarter of the {there} would be avoided"
        else:
            avoided.append(one)
            most -= costs
            spare -= costs
            continue
        kept.append((one, why))
    return Choice(tuple(avoided), tuple(kept))


def _expand(option: str, value: str) -> tuple[str, ...]:
    if "/" in value:
        raise UsageError(f"sbatch.{option} names a file, which relight does not read")
    try:
        return expand_nodes(value)
    except ValueError as error:
        raise UsageError(f"sbatch.{option}: {error}") from error


def _partition(client: SlurmClient, name: str | None) -> dict[tuple[str, str], str]:
    """The state of each node of the partition, by cluster and node."""
    cluster = client.config().get("ClusterName", "")
    if name is None:
        defaults = (p["PartitionName"] for p in client.partitions() if p.get("Default") == "YES")
        name = next(defaults, None)
    if name is None:
        return {}
    return {(cluster, node): state for node, state in client.nodes_of_partition(name).items()}


def _notes(choice: Choice) -> tuple[str, ...]:
    avoided = [
        f"avoiding {one.node}: {one.evidence[0].newest} "
        f"({seen_by(one)}; `relight nodes show {one.node}`)"
        for one in choice.avoided
    ]
    kept = [f"{one.node} is known to be bad but not excluded: {why}" for one, why in choice.kept]
    return (*avoided, *kept)
