"""Where a rank is in its world (pure).

Ranks follow the nodes of the step in their order, tasks of a node side by side, which is how Slurm
numbers tasks under block distribution, and over the components of a heterogeneous job.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import ComponentConfig, RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """``node`` counts the nodes of all ranks; ``local_size`` is the number of ranks on this one.

    ``component_rank`` counts within the component, of ``component_size`` ranks.
    """

    node: int
    local_rank: int
    local_size: int
    component: ComponentConfig | None = None
    component_rank: int = 0
    component_size: int = 0


def place_of(config: RunConfig, rank: int) -> RankPlace:
    """The place of a rank that the run has."""
    node, before = 0, rank
    for component in config.components:
        ranks = component.nodes * component.tasks_per_node
        if before < ranks:
            number, local_rank = divmod(before, component.tasks_per_node)
            return RankPlace(
                node=node + number,
                local_rank=local_rank,
                local_size=component.tasks_per_node,
                component=component,
                component_rank=before,
                component_size=ranks,
            )
        node, before = node + component.nodes, before - ranks
    number, local_rank = divmod(rank, config.tasks_per_node)
    return RankPlace(node=number, local_rank=local_rank, local_size=config.tasks_per_node)
