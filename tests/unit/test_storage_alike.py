"""Keys that look alike are different keys, and arrays that lie alike different arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from relight.storage.boxes import Part, Replicated
from relight.storage.checkpointer import load_shard, load_state, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.compare import Source, compare
from relight.storage.errors import ExportRefused
from relight.storage.export import export
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.shards import Shards

ONE = Incarnation("1.0", 0)
ALIKE = [1, "1", None, "null", 1.5, "1.5", (2,), '{"tuple": [2]}', "a/b"]


def saved(directory: Path, *states: Mapping[str, object]) -> Manifest:
    epoch = claim_epoch(directory, ONE)
    receipts = [
        save_shard(directory, 1, ONE, rank, len(states), state) for rank, state in enumerate(states)
    ]
    return commit(directory, 1, ONE, epoch, receipts, {})


def named(change: float = 0.0) -> dict[object, object]:
    arrays: dict[object, object] = {key: np.full(9, n) + change for n, key in enumerate(ALIKE)}
    return arrays | {"a": {"b": np.full(9, len(ALIKE)) + change}}


def numbers(state: object) -> list[float]:
    assert isinstance(state, dict)
    assert isinstance(state["a"], dict)
    return [float(state[key][0]) for key in ALIKE] + [float(state["a"]["b"][0])]


def test_each_comes_back_whoever_has_saved_it(tmp_path: Path) -> None:
    """The third rank borrows all, and some of them from one rank."""
    state = {"first": Replicated(np.zeros(99)), "m": Replicated(named())}
    manifest = saved(tmp_path, *[state] * 3)
    for rank in range(3):
        assert numbers(load_shard(tmp_path, manifest, rank)["m"]) == list(range(len(ALIKE) + 1))
    assert numbers(load_state(tmp_path, manifest, 4, 5)["m"]) == list(range(len(ALIKE) + 1))


def test_parts_are_put_together_with_their_like(tmp_path: Path) -> None:
    states = [
        {"m": {key: Part(np.full(1, n), (2,), (rank,)) for n, key in enumerate(ALIKE)}}
        for rank in range(2)
    ]
    found = load_state(tmp_path, saved(tmp_path, *states), 0, 1)["m"]
    assert isinstance(found, dict)
    assert {key: list(value) for key, value in found.items()} == {
        key: [n, n] for n, key in enumerate(ALIKE)
    }


def test_each_is_compared_and_none_is_lost_in_an_export(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    manifests = saved(one, {"m": named()}), saved(other, {"m": named(0.5)})
    with Shards(one, manifests[0]) as shards, Shards(other, manifests[1]) as others:
        found = compare(Source(manifests[0], shards), Source(manifests[1], others))
    assert [difference.max_abs for difference in found.arrays] == [0.5] * (len(ALIKE) + 1)
    with pytest.raises(ExportRefused, match="two arrays would be named m/1"):
        export(one, manifests[0], tmp_path / "all.npz")
    assert not (tmp_path / "all.npz").exists()


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
@pytest.mark.filterwarnings("ignore:.*quantized:DeprecationWarning")
def test_arrays_that_are_made_for_a_save_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """The ints of a quantised tensor are a copy, and where one was another one may lie next."""
    values = torch.randn(6, 40, 30, generator=torch.Generator().manual_seed(1))
    model = {
        str(n): torch.quantize_per_tensor(one, 0.1, 3, torch.qint8) for n, one in enumerate(values)
    }
    manifest = saved(tmp_path, *[{"model": Replicated(model)}] * 2)
    for rank in range(2):
        found = load_shard(tmp_path, manifest, rank)["model"]
        assert isinstance(found, dict)
        for name, tensor in model.items():
            assert torch.equal(found[name].int_repr(), tensor.int_repr()), name


def test_small_arrays_lie_anywhere_in_the_file(tmp_path: Path) -> None:
    """torch dies of a copy of complex numbers from an odd address."""
    names = ("complex128", "complex64", "float64", "int64")
    state = {name: torch.arange(3).to(getattr(torch, name)) for name in names}
    manifest = saved(tmp_path, {"flag": torch.tensor(True), **state})
    found = load_shard(tmp_path, manifest, 0)
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor)  # type: ignore[arg-type]
