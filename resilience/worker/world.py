"""Which rank this process is: from the environment, from MPI, or alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import JoinRefused

_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


@dataclass(frozen=True, slots=True)
class World:
    """This process among all of the run; the last two count on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def find_world(environ: Mapping[str, str]) -> World:
    """RANK and WORLD_SIZE if set (relight, torchrun), else MPI's world if it is loaded, else one.

    Raises:
        JoinRefused: the variables are damaged, or MPI says something else.
    """
    mpi = _mpi_world(environ)
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return mpi or World()
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    world = World(rank, size, *_local(environ))
    if not 0 <= rank < size:
        raise JoinRefused(f"RANK={rank} is not in a world of WORLD_SIZE={size}")
    if mpi is not None and (mpi.rank, mpi.size) != (rank, size):
        raise JoinRefused(
            f"MPI says rank {mpi.rank} of {mpi.size}, the environment rank {rank} of {size}: the "
            "processes were started without MPI's help; set `mpi: pmix` in the job's spec"
        )
    return world


def find_device(local_rank: int) -> str:
    """The torch device of this rank; "cpu" when torch is not loaded or sees no GPU."""
    if "torch" not in sys.modules:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    # Where Slurm binds one GPU to each task, every task sees only number 0.
    return f"cuda:{local_rank % torch.cuda.device_count()}"


def _mpi_world(environ: Mapping[str, str]) -> World | None:
    if "mpi4py.MPI" not in sys.modules:
        return None
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return World(world.Get_rank(), world.Get_size(), *_local(environ))


def _local(environ: Mapping[str, str]) -> tuple[int, int]:
    rank, size = (
        next((_number(environ, name) for name in names if name in environ), default)
        for names, default in ((_LOCAL_RANKS, 0), (_LOCAL_SIZES, 1))
    )
    return rank, size


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError) as error:
        raise JoinRefused(
            f"{name} is {environ.get(name)!r}, expected a number: RANK and WORLD_SIZE are set "
            "together by whatever starts the ranks; unset both for a world of one"
        ) from error
