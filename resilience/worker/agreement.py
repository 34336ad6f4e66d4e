"""How ranks that no agent has started agree on one thing: once, before the first step."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from relight.errors import RelightError
from relight.storage.errors import NoValidCheckpoint

from .errors import OtherRankFailed, StepsRefused
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


def together(gather_all: GatherAll, act: Callable[[], str]) -> list[str]:
    """What ``act`` gives on each rank, by rank. Where one fails all do: they would wait for it.

    Raises what ``act`` does; where that is another rank's, NoValidCheckpoint or OtherRankFailed.
    """
    failure: RelightError | OSError | None = None
    reasons: tuple[str, ...] | None = None
    word = ""
    try:
        word = act()
    except NoValidCheckpoint as error:
        failure, reasons = error, (error.directory, *error.reasons)
    except (RelightError, OSError) as error:
        failure = error
    said = [word, None if failure is None else str(failure), reasons]
    words = [json.loads(one) for one in gather_all(json.dumps(said))]
    if failure is not None:
        raise failure
    for rank, (_, failed, none_valid) in enumerate(words):
        if none_valid is not None:
            raise NoValidCheckpoint(none_valid[0], tuple(none_valid[1:]))
        if failed is not None:
            raise OtherRankFailed(f"rank {rank} cannot restore: {failed}")
    return [str(found) for found, _, _ in words]


def _torch_gather(word: str, size: int) -> list[str]:
    import torch.distributed

    words = [""] * size
    torch.distributed.all_gather_object(words, word)
    return words
