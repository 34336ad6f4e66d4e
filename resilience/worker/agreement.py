"""How ranks that no agent has started agree on one thing: once, before the first step."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .errors import StepsRefused
from .world import World

GatherAll = Callable[[str], list[str]]  # a word of each rank → the words of all, by rank


def find_agreement(world: World) -> GatherAll:
    """A collective over the world that the program itself has made.

    Raises:
        StepsRefused: it has made none, so the ranks cannot reach each other.
    """
    if world.size == 1:
        return lambda word: [word]
    if "torch.distributed" in sys.modules:
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return lambda word: _torch_gather(word, world.size)
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        return lambda word: [str(other) for other in MPI.COMM_WORLD.allgather(word)]
    raise StepsRefused(
        f"{world.size} ranks without relight's launcher must agree on a checkpoint before the "
        "first step: call torch.distributed.init_process_group() before run.steps(), or start the "
        "program with `relight run`"
    )


def _torch_gather(word: str, size: int) -> list[str]:
    import torch.distributed

    words = [""] * size
    torch.distributed.all_gather_object(words, word)
    return words
