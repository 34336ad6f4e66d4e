"""A command that is run once on each node, and starts the ranks of it: torchrun and its like. Pure.

torchrun takes each option that it is not given from a variable ``PET_<OPTION>``
(torch/distributed/argparse_util.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..config import RunConfig
from ..messages import Message
from ..place import RankPlace
from ..worker.environment import OF_A_RANK, SOCKETS

# Ranks are to be told of a stop, and to save, by their agents: torchrun would end them instead.
_UNHEEDED: Final = "SIGQUIT"
# How one rank has ended is read from /proc until torchrun looks, which has no need to hurry.
_LOOK_S: Final = "1"


def environment_of_command(
    config: RunConfig, of_rank: Mapping[str, str], nodes: int
) -> dict[str, str]:
    """What the command of a node finds, from what a rank of that node would.

    Some of it is there to hide what whoever submitted the run has been told of another world.
    """
    shared = {name: value for name, value in of_rank.items() if name not in OF_A_RANK}
    world = {
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": of_rank["NODE_RANK"],
        "PET_NPROC_PER_NODE": str(config.tasks_per_node),
        "PET_MASTER_ADDR": of_rank["MASTER_ADDR"],
        "PET_MASTER_PORT": of_rank["MASTER_PORT"],
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "",
        "PET_RDZV_CONF": "",
        "PET_STANDALONE": "0",
        "PET_MAX_RESTARTS": "0",
        "PET_SIGNALS_TO_HANDLE": _UNHEEDED,
        "PET_REDIRECTS": "0",  # the cause of a rank's end is looked for in the log
    }
    return {"PET_MONITOR_INTERVAL": _LOOK_S, **shared, **world}


def of_node(
    config: RunConfig, order: Message, place: RankPlace, addresses: Mapping[int, str]
) -> Message:
    """The ``start`` of one rank's agent as that of the node's command.

    ``addresses`` are those of all agents, by rank.
    """
    first = place.node * config.tasks_per_node
    here = {rank: addresses[rank] for rank in range(first, first + config.tasks_per_node)}
    env = order["env"]
    assert isinstance(env, dict)
    command_env = environment_of_command(config, env, len(addresses) // config.tasks_per_node)
    sockets = ",".join(f"{rank}={address}" for rank, address in here.items())
    others = [address for rank, address in here.items() if rank != first]
    return {
        **order,
        "env": {**command_env, SOCKETS: sockets},
        "warm": False,
        "command_of_node": {"local_rank": place.local_rank, "others": others},
    }


def step_options(config: RunConfig) -> tuple[str, ...]:
    """What srun is told: the first agent of a node starts what needs the CPUs of all."""
    return ("--cpu-bind=none",) if config.command_per == "node" else ()
