"""Slurm's variables for a rank whose world runs in several steps, as one step would set them. Pure.

Each agent has those of its own step (man srun, OUTPUT ENVIRONMENT VARIABLES), and some programs
find their world by them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..config import RunConfig
from ..place import place_of

_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,9})")


def variables(config: RunConfig, rank: int, nodes: tuple[str, ...]) -> dict[str, str]:
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
        "SLURM_STEP_NODELIST": node_list(nodes),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NUM_TASKS": str(ranks),
        "SLURM_STEP_TASKS_PER_NODE": tasks,
    }


@lru_cache(maxsize=1)  # of thousands of nodes, for each of their ranks
def node_list(nodes: Sequence[str]) -> str:
    """Written as Slurm does, ``n[01-12],login``: a variable must not have more than 128 KiB."""
    runs: list[tuple[str, str, str]] = []  # what is before the number, the first and the last
    for node in nodes:
        match = _NUMBERED.fullmatch(node)
        before, number = match.groups() if match else (node, "")
        if runs and number and runs[-1][0] == before and _after(runs[-1][2]) == number:
            runs[-1] = (before, runs[-1][1], number)
        else:
            runs.append((before, number, number))
    return ",".join(
        before + (first if first == last else f"[{first}-{last}]") for before, first, last in runs
    )


def _after(number: str) -> str:
    """The next one, as wide."""
    return f"{int(number) + 1:0{len(number)}}" if number else ""
