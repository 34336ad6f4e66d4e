"""How large the next job of a run may be (pure): with all spares, or with fewer, but never waiting
for one. The first job is as large as its user wants it."""

from __future__ import annotations

from dataclasses import dataclass

from relight.resilience.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """From ``least`` to ``most`` nodes; ``cpus`` are those of the least."""

    least: int
    most: int
    cpus: int

    @property
    def nodes(self) -> str:
        """As sbatch takes it."""
        return f"{self.least}-{self.most}"


def is_fixed(config: RunConfig) -> bool:
    """Whether all jobs of a run have the same number of nodes.

    One that may have more must not say how many tasks are on a node. Slurm 22.05 takes that times
    the fewest nodes for the number of all tasks, and gives no more nodes than that, however many
    are idle; 20.11 and 25.11 do not. So it asks for all CPUs of a node as for those of one task.
    """
    return config.nodes_needed == config.nodes_wanted


def next_size(config: RunConfig) -> Size | None:
    """None where the size of its script is right: no spares, or a range that has them already."""
    if not config.spares or config.min_nodes is not None:
        return None
    cpus = config.nodes * config.tasks_per_node * config.cpus_per_task
    return Size(least=config.nodes, most=config.nodes_wanted, cpus=cpus)
