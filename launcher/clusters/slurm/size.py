"""How large the next job of a run may be (pure): with all spares, or with fewer, but never waiting
for one. The first job is as large as its user wants it."""

from __future__ import annotations

from dataclasses import dataclass

from relight.resilience.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """From ``least`` to ``most`` nodes; ``tasks`` and ``cpus`` are those of the least; None where
    the job does not say how many tasks it has."""

    least: int
    most: int
    tasks: int | None
    cpus: int

    @property
    def nodes(self) -> str:
        """As sbatch takes it."""
        return f"{self.least}-{self.most}"


def says_tasks(config: RunConfig) -> bool:
    """Whether a job says how many tasks are on a node, for one is what Slurm takes anyway.

    Who says one, and a range of nodes, is given the fewest of them, however many there are (22.05;
    not with two or more).
    """
    return config.tasks_per_node > 1 or config.nodes_needed == config.nodes_wanted


def next_size(config: RunConfig) -> Size | None:
    """None where the size of its script is right: no spares, or a range that has them already."""
    if not config.spares or config.min_nodes is not None:
        return None
    tasks = config.nodes * config.tasks_per_node
    return Size(
        least=config.nodes,
        most=config.nodes_wanted,
        tasks=tasks if says_tasks(config) else None,
        cpus=tasks * config.cpus_per_task,
    )
