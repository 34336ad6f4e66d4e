"""Slurm's variables for a rank whose world runs in several steps, as one step would set them. Pure.

Each agent has those of its own step (man srun, OUTPUT ENVIRONMENT VARIABLES), and some programs
find their world by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import RunConfig
from ..place import place_of


def variables(config: RunConfig, rank: int, nodes: Sequence[str]) -> dict[str, str]:
    """What a step of ranks on these nodes, in this order, would say to ``rank``."""
    place, ranks = place_of(config, rank), config.ranks_on(len(nodes))
    first = rank - place.local_rank
    tasks = f"{place.local_size}(x{len(nodes)})" if len(nodes) > 1 else str(place.local_size)
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(place.node),
        "SLURM_GTIDS": ",".join(map(str, range(first, first + place.local_size))),
        "SLURM_NTASKS": str(ranks),
        "SLURM_NPROCS": str(ranks),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_TASKS_PER_NODE": tasks,
        "SLURM_STEP_NODELIST": ",".join(nodes),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NUM_TASKS": str(ranks),
        "SLURM_STEP_TASKS_PER_NODE": tasks,
    }
