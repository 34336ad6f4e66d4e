"""The peers of `checkpoint.py` that are not always there: those whose packages are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from checkpoint_contenders import Contender, State, make_durable


def installed_peers() -> Iterator[Contender]:
    """Each with its own way to save and to restore; all data and names are fsynced at the end."""
    for package, peer in _PEERS.items():
        if find_spec(package) is not None:
            yield peer()


def _safetensors() -> Contender:
    from safetensors import torch as safetensors

    def save(folder: Path, state: State) -> None:
        safetensors.save_file(state, folder / "state.safetensors")
        make_durable(folder)

    def restore(folder: Path, _: State) -> State:
        return {**safetensors.load_file(folder / "state.safetensors")}

    return Contender("safetensors", save, restore)


def _torchsnapshot() -> Contender:
    from torchsnapshot import Snapshot, StateDict

    def save(folder: Path, state: State) -> None:
        Snapshot.take(str(folder / "snapshot"), {"state": StateDict(**state)})
        make_durable(folder)

    def restore(folder: Path, there: State) -> State:
        found = StateDict(**there)
        Snapshot(str(folder / "snapshot")).restore({"state": found})
        return dict(found)

    return Contender("torchsnapshot", save, restore, most_arrays=10_000)


def _orbax() -> Contender:
    """JAX's; of numpy arrays, as there is no accelerator."""
    import numpy as np
    import orbax.checkpoint as orbax

    def save(folder: Path, state: State) -> None:
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        with orbax.PyTreeCheckpointer() as checkpointer:
            checkpointer.save((folder / "orbax").absolute(), arrays)
        make_durable(folder)

    def restore(folder: Path, there: State) -> State:
        wanted = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in there}
        with orbax.PyTreeCheckpointer() as checkpointer:
            found = checkpointer.restore((folder / "orbax").absolute(), restore_args=wanted)
        return {name: torch.from_numpy(array) for name, array in found.items()}

    return Contender("Orbax", save, restore, most_arrays=10_000)


_PEERS: dict[str, Callable[[], Contender]] = {
    "safetensors": _safetensors,
    "torchsnapshot": _torchsnapshot,
    "orbax": _orbax,
}
