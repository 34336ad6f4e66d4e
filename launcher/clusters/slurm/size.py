"""How large the next job of a run may be (pure): with all spares, or with fewer, but never waiting
for one. The first job is as large as its user wants it."""

from __future__ import annotations

from dataclasses import dataclass

from relight.resilience.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """From ``least`` to ``most`` nodes; ``tasks`` and ``cpus`` are those of the least."""

    least: int
    most: int
    tasks: int
    cpus: int

    @property
    def nodes(self) -> str:
        """As sbatch takes it."""
        return f"{self.least}-{self.most}"


def next_size(config: RunConfig) -> Size | None:
    """None where the size of its script is right: no spares, or a range that has them already."""
    if not config.spares or config.min_nodes is not None:
        return None
    tasks = config.nodes * config.tasks_per_node
    return Size(
        least=config.nodes,
        most=config.nodes_wanted,
        tasks=tasks,
        cpus=tasks * config.cpus_per_task,
    )
