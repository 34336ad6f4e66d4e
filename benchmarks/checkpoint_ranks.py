"""Two ranks that hold halves of some arrays and the same values of others, all of them DTensors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from checkpoint_contenders import Raw, fsync_dir, make_durable
from checkpoint_measure import (
    Measured,
    Result,
    Rounds,
    drop_cache,
    measured,
    run_raw,
    stored_bytes,
)
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_dcp
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit, read_receipts
from relight.storage.layout import Incarnation

RANKS = 2
State = dict[str, DTensor]
_ONE = Incarnation("bench", 0)


def two_ranks(folder: Path, rounds: int, *, quick: bool) -> tuple[Rounds, int]:
    """All rounds, and the bytes of the state, each replicated array counted once."""
    with TemporaryDirectory(dir=folder) as place:
        start: Callable[..., object] = torch.multiprocessing.spawn
        start(_rank, (place, rounds, quick), nprocs=RANKS)
        found = json.loads(Path(place, "found.json").read_text())
    results = {
        name: [
            Result(Measured(*one["save"]), Measured(*one["restore"]), one["stored_bytes"])
            for one in ones
        ]
        for name, ones in found["rounds"].items()
    }
    return results, found["payload"]


def _rank(rank: int, place: str, rounds: int, quick: bool) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{place}/store", rank=rank, world_size=RANKS
    )
    state, payload = _state(quick)
    raw = Raw(payload) if rank == 0 else None
    found: dict[str, list[object]] = defaultdict(list)
    for number in range(rounds):
        if raw is not None:
            with TemporaryDirectory(dir=place) as empty:
                for name, result in run_raw(Path(empty), raw):
                    found[name].append(_plain(result))
        dist.barrier()
        for name, (save, restore) in _CONTENDERS.items():
            folder = Path(place, f"{name}-{number}".replace(" ", "-"))
            result = _run(folder, state, save, restore)
            found[name].append(_plain(result))
    if rank == 0:
        text = json.dumps({"rounds": found, "payload": payload})
        Path(place, "found.json").write_text(text)
    dist.barrier()
    dist.destroy_process_group()


def _state(quick: bool) -> tuple[State, int]:
    mesh = init_device_mesh("cpu", (RANKS,))
    count, size = (4, 1 << 20) if quick else (64, 8 << 20)
    torch.manual_seed(1)
    state = {
        f"layers.{n}.weight": distribute_tensor(
            torch.randn(size), mesh, [Shard(0) if n % 2 else Replicate()]
        )
        for n in range(count)
    }
    return state, count * size * 4


def _run(
    folder: Path,
    state: State,
    save: Callable[[Path, State], None],
    restore: Callable[[Path, State], dict[str, Any]],
) -> Result:
    if dist.get_rank() == 0:
        folder.mkdir()
    saved = _together(lambda: save(folder, state))
    drop_cache(folder)
    loaded: dict[str, Any] = {}
    restored = _together(lambda: loaded.update(restore(folder, state)))
    for name, tensor in state.items():
        value = loaded[name]
        if not torch.equal(
            value.to_local() if isinstance(value, DTensor) else value, tensor.to_local()
        ):
            raise ValueError(f"{name} did not come back as it was")
    result = Result(saved, restored, stored_bytes(folder))
    dist.barrier()
    return result


def _together(work: Callable[[], object]) -> Measured:
    """From a common begin to the end of the last rank; processor time of all."""
    dist.barrier()

    def until_all() -> None:
        work()
        dist.barrier()

    one = measured(until_all)
    cpu = torch.tensor(one.cpu_seconds, dtype=torch.float64)
    dist.all_reduce(cpu)
    return Measured(one.seconds, float(cpu))


def _save_relight(folder: Path, state: State) -> None:
    rank = dist.get_rank()
    folder.mkdir(exist_ok=True)
    epoch = claim_epoch(folder, _ONE) if rank == 0 else 0
    save_shard(folder, 1, _ONE, rank, RANKS, state)
    dist.barrier()
    if rank == 0:
        commit(folder, 1, _ONE, epoch, read_receipts(folder, 1, _ONE), {})


def _restore_relight(folder: Path, _: State) -> dict[str, Any]:
    manifest = newest_valid(folder)
    if manifest is None:
        raise FileNotFoundError(folder)
    loaded: dict[str, Any] = load_shard(folder, manifest, dist.get_rank())
    return loaded


def _save_dcp(folder: Path, state: State) -> None:
    save_dcp({**state}, storage_writer=FileSystemWriter(folder, thread_count=4, sync_files=True))
    if dist.get_rank() == 0:
        make_durable(folder)
        fsync_dir(folder.parent)


def _restore_dcp(folder: Path, like: State) -> dict[str, Any]:
    target = {
        name: zeros(one.shape, device_mesh=one.device_mesh, placements=one.placements)
        for name, one in like.items()
    }
    load_dcp(target, storage_reader=FileSystemReader(folder))
    return {**target}


_CONTENDERS = {
    "relight": (_save_relight, _restore_relight),
    "DCP, 4 threads": (_save_dcp, _restore_dcp),
}


def _plain(result: Result) -> object:
    return {
        "save": list(asdict(result.save).values()),
        "restore": list(asdict(result.restore).values()),
        "stored_bytes": result.stored_bytes,
    }
