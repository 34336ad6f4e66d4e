"""Saved by N ranks, restored by M: cut in any way, replicated, uneven, empty, tied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor import Shard as Sharded

from relight.storage.boxes import Box, Part, Replicated, fault
from relight.storage.checkpointer import load_shard, load_state, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import PartsUnfit, SaveIncomplete, StateRefused, WorldChanged
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
State = dict[str, object]
Array = npt.NDArray[np.generic]


def save(directory: Path, states: list[State], step: int = 1) -> Manifest:
    epoch = claim_epoch(directory, ONE)
    size = len(states)
    receipts = [save_shard(directory, step, ONE, n, size, state) for n, state in enumerate(states)]
    return commit(directory, step, ONE, epoch, receipts, {})


def cut(shape: tuple[int, ...], counts: tuple[int, ...]) -> list[Box]:
    """A grid of boxes, uneven where it does not divide, some empty where it is too fine."""
    axes = []
    for size, count in zip(shape, counts, strict=True):
        step = -(-size // count)
        axes.append(
            [(min(n * step, size), min(step, max(0, size - n * step))) for n in range(count)]
        )
    return [Box(tuple(a for a, _ in cell), tuple(n for _, n in cell)) for cell in product(*axes)]


def inside(array: Array, box: Box) -> Array:
    return np.asarray(array[box.within(Box((0,) * array.ndim, array.shape))])


def rows_of(shape: tuple[int, ...], ranks: int) -> list[Box]:
    return cut(shape, (ranks,) + (1,) * (len(shape) - 1))


def part(array: Array, box: Box) -> Part:
    return Part(inside(array, box), array.shape, box.offset)


def array_of(value: object) -> Array:
    return value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_cut_comes_back_in_any_other(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    array = np.asarray(np.random.default_rng(0).integers(0, 99, shape, np.int16))
    if data.draw(st.booleans()):
        array = array.T
    saved, wanted = (
        cut(array.shape, data.draw(st.tuples(*(st.integers(1, most) for _ in shape))))
        for most in (2, 3)
    )
    directory = tmp_path_factory.mktemp("cut")
    states: list[State] = [{"w": part(array, box), "rank": n} for n, box in enumerate(saved)]
    manifest = save(directory, states)
    assert verify(directory).sound
    for rank, box in enumerate(wanted):
        state = load_state(directory, manifest, rank, len(wanted), {"w": box})
        assert state["rank"] == rank % manifest.world_size
        assert np.array_equal(array_of(state["w"]), inside(array, box))


@pytest.mark.parametrize("ranks", [1, 3, 5, 16])
def test_the_classic_breakages(tmp_path: Path, ranks: int) -> None:
    """Six elements over four ranks, a one-row array over eight, no rows at all, large rows."""
    arrays: dict[str, Array] = {
        "six": np.arange(6.0),
        "row": np.arange(10, dtype=">i4").reshape(1, 2, 5),
        "none": np.zeros((0, 3), "f4"),
        "large": np.random.default_rng(0).normal(size=(37, 9000, 5)),
    }
    eighths = {name: rows_of(array.shape, 8) for name, array in arrays.items()}
    states: list[State] = [
        {name: part(array, eighths[name][n]) for name, array in arrays.items()} for n in range(8)
    ]
    manifest = save(tmp_path, states)
    boxes = {name: rows_of(array.shape, ranks) for name, array in arrays.items()}
    for rank in range(ranks):
        wanted = {name: cells[rank] for name, cells in boxes.items()}
        state = load_state(tmp_path, manifest, rank, ranks, wanted)
        for name, array in arrays.items():
            expected, found = inside(array, wanted[name]), array_of(state[name])
            assert (found.dtype, found.shape) == (array.dtype, expected.shape)
            assert found.tobytes() == expected.tobytes()
    for rank in range(8):
        own = load_shard(tmp_path, manifest, rank)
        for name, array in arrays.items():
            assert np.array_equal(array_of(own[name]), inside(array, eighths[name][rank]))


def test_tensors_of_a_pipeline_change_their_rank(tmp_path: Path) -> None:
    layers = [torch.randn(4, 6, dtype=torch.bfloat16) for _ in range(4)]
    whole = (4, 6)
    states: list[State] = [
        {"model": {f"l{n}": Part(layers[n], whole, (0, 0)) for n in (2 * r, 2 * r + 1)}, "rng": r}
        for r in range(2)
    ]
    manifest = save(tmp_path, states)
    for rank in range(4):
        wanted = {"model": {f"l{rank}": Box((0, 0), whole)}}
        state = load_state(tmp_path, manifest, rank, 4, wanted)
        model = state["model"]
        assert isinstance(model, dict)
        assert torch.equal(model[f"l{rank}"], layers[rank])
        assert state["rng"] == rank % 2
    everything = load_state(tmp_path, manifest, 1, 3)["model"]
    assert isinstance(everything, dict)
    assert [torch.equal(everything[f"l{n}"], layers[n]) for n in (2, 3)] == [True, True]


def test_replicated_arrays_are_written_once_and_restored_everywhere(tmp_path: Path) -> None:
    weights = {f"w{n}": torch.randn(100, 200) for n in range(9)} | {"small": torch.ones(3)}
    tied = {**weights, "head": weights["w0"], "steps": 7, "long": b"x" * 1000}
    states: list[State] = [{"model": Replicated(tied), "rng": np.array([n])} for n in range(3)]
    manifest = save(tmp_path, states)
    sizes = [receipt.payload_bytes for receipt in manifest.receipts]
    assert sum(sizes) == 9 * 80_000 + 12 + 1000 + 3 * 8
    assert max(sizes) - min(sizes) < 90_000
    for ranks in (3, 1, 5):
        for rank in range(ranks):
            state = load_state(tmp_path, manifest, rank, ranks)
            model = state["model"]
            assert isinstance(model, dict)
            assert model.keys() == tied.keys()
            assert all(torch.equal(model[name], weights[name]) for name in weights)
            assert model["head"] is model["w0"]
            assert (model["steps"], model["long"]) == (7, b"x" * 1000)
            assert array_of(state["rng"]) == [rank % 3]
    assert verify(tmp_path).sound


def test_ranks_that_disagree_on_what_is_replicated_are_not_committed(tmp_path: Path) -> None:
    a, b = np.ones(3), np.zeros(3)
    with pytest.raises(SaveIncomplete, match="different replicated arrays"):
        save(tmp_path, [{"m": Replicated({"a": a, "b": b})}, {"m": Replicated({"b": b, "a": a})}])


@pytest.mark.parametrize(
    ("boxes", "reason"),
    [
        ([Box((0,), (4,)), Box((5,), (5,))], "1 of 10 elements are in no part"),
        ([Box((0,), (6,)), Box((5,), (5,))], "overlap"),
    ],
)
def test_gaps_and_overlaps_are_found(tmp_path: Path, boxes: list[Box], reason: str) -> None:
    array = np.arange(10)
    manifest = save(tmp_path, [{"w": part(array, box)} for box in boxes])
    with pytest.raises(PartsUnfit, match=f"w cannot be restored: .*{reason}"):
        load_state(tmp_path, manifest, 0, 1)
    (finding,) = verify(tmp_path).findings
    assert (finding.array, reason in finding.reason) == ("w", True)
    half = load_state(tmp_path, manifest, 0, 1, {"w": Box((0,), (3,))})["w"]
    assert np.array_equal(array_of(half), array[:3])


def test_what_cannot_be_wanted_is_refused(tmp_path: Path) -> None:
    parts = [Part(np.arange(4), (8,), (0,)), Part(np.ones(4), (8,), (4,))]
    manifest = save(tmp_path, [{"w": one} for one in parts])
    for wanted, reason in (
        (None, "dtype"),
        ({"v": Box((0,), (1,))}, "no rank has saved"),
    ):
        with pytest.raises(PartsUnfit, match=reason):
            load_state(tmp_path, manifest, 0, 3, wanted)
    with pytest.raises(WorldChanged):
        load_shard(tmp_path, manifest, 0, 3)
    assert load_state(tmp_path, manifest, 0, 3, {"no": {}})["w"] is None


@pytest.mark.parametrize(
    "bad",
    [
        Part(np.ones(3), (2,), (0,)),
        Part(np.ones(3), (4,), (2,)),
        Part(np.ones(3), (4, 1), (0, 0)),
        Part([1, 2], (2,), (0,)),
        Part(np.float64(1), (), ()),
        Part(b"x" * 1000, (1000,), (0,)),
        Part(Part(np.ones(2), (2,), (0,)), (2,), (0,)),
        Replicated([Replicated(1)]),
        Replicated(Part(np.ones(2), (2,), (0,))),
    ],
    ids=lambda bad: repr(bad)[:40],
)
def test_parts_that_are_none_are_refused(tmp_path: Path, bad: object) -> None:
    with pytest.raises(StateRefused, match="Cannot save w"):
        save_shard(tmp_path, 1, ONE, 0, 1, {"w": bad})


@given(st.data())
def test_the_check_of_boxes_is_that_of_their_elements(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    sides = [st.tuples(st.integers(0, n), st.integers(0, n)) for n in shape]
    pairs = data.draw(st.lists(st.tuples(*sides), max_size=4))
    boxes = [Box(tuple(min(p) for p in one), tuple(max(p) - min(p) for p in one)) for one in pairs]
    whole = Box((0,) * len(shape), shape)
    times = np.zeros(shape, int)
    for box in boxes:
        times[box.within(whole)] += 1
    assert (fault(whole, boxes) == "") == bool((times == 1).all())


@pytest.fixture
def world_of_four() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def as_rank(rank: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=rank, world_size=4, store=FakeStore())


@pytest.mark.filterwarnings("ignore")
def test_dtensors_are_parts_of_which_replicas_save_one(tmp_path: Path, world_of_four: None) -> None:
    weight, bias = torch.randn(5, 6), torch.randn(3)
    halves = rows_of((5, 6), 2)
    receipts = []
    epoch = claim_epoch(tmp_path, ONE)
    for rank in range(4):
        as_rank(rank)
        mesh = init_device_mesh("cpu", (2, 2))
        local = torch.from_numpy(inside(weight.numpy(), halves[rank % 2]))
        state: State = {
            "hsdp": DTensor.from_local(
                local,
                mesh,
                (Replicate(), Sharded(0)),
                run_check=False,
                shape=weight.shape,
                stride=(6, 1),
            ),
            "bias": DTensor.from_local(bias, mesh, (Replicate(), Replicate()), run_check=False),
        }
        with pytest.raises(StateRefused, match="placed as"):
            save_shard(tmp_path, 1, ONE, rank, 4, {
                "p": DTensor.from_local(bias, mesh, (Partial(), Replicate()), run_check=False)
            })  # fmt: skip
        receipts.append(save_shard(tmp_path, 1, ONE, rank, 4, state))
    manifest = commit(tmp_path, 1, ONE, epoch, receipts, {})
    assert manifest.payload_bytes == 5 * 6 * 4 + 3 * 4
    assert verify(tmp_path).sound
    for rank in range(4):
        own = load_shard(tmp_path, manifest, rank)
        expected = inside(weight.numpy(), halves[rank % 2])
        assert np.array_equal(array_of(own["hsdp"]), expected)
        assert np.array_equal(array_of(own["bias"]), bias.numpy())
    whole = load_state(tmp_path, manifest, 0, 1)
    assert np.array_equal(array_of(whole["hsdp"]), weight.numpy())
