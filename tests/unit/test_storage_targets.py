"""What is restored into the program's own arrays is what would have come in others, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_roundtrip import exact

from relight.storage.boxes import Part, Replicated
from relight.storage.checkpointer import CheckpointDamaged, load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.keys import Path as Key
from relight.storage.layout import Incarnation, shard_path
from relight.storage.manifest import Manifest
from relight.storage.page_memory import in_huge_pages

ONE = Incarnation("1.0", 0)
Floats = npt.NDArray[np.float32]
State = dict[str, object]


def saved(directory: Path, state: State, step: int = 1) -> Manifest:
    epoch = claim_epoch(directory, ONE)
    receipt = save_shard(directory, step, ONE, 0, 1, state)
    return commit(directory, step, ONE, epoch, [receipt], {})


@dataclass
class Case:
    """A state that is saved, and a program with arrays like those, or not quite like those."""

    dice: np.random.Generator
    state: State = field(default_factory=dict)
    program: State = field(default_factory=dict)
    margins: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    fits: bool = True

    def values(self) -> Floats:
        rows, columns = self.dice.integers(1, 4), self.dice.integers(17_000, 20_000)
        return self.dice.random((rows, columns), np.float32)

    def room(self, size_bytes: int, offset: int = 20) -> npt.NDArray[np.uint8]:
        """Of the program, within memory that is nobody's."""
        whole = np.frombuffer(in_huge_pages(size_bytes + 8192), np.uint8)
        whole[:] = 7
        start = 4096 + offset
        self.margins += [whole[:start], whole[start + size_bytes :]]
        return whole[start : start + size_bytes]

    def like(self, array: Floats, offset: int = 20) -> Floats:
        return self.room(array.nbytes, offset).view(np.float32).reshape(array.shape)


def at_a_page(case: Case, array: Floats) -> object:
    return case.like(array, 0)


def elsewhere(case: Case, array: Floats) -> object:
    return case.like(array)


def tensor(case: Case, array: Floats) -> object:
    return torch.from_numpy(case.like(array)).requires_grad_()


def strided(case: Case, array: Floats) -> object:
    return case.room(2 * array.nbytes).view(np.float32).reshape(*array.shape, 2)[..., 0]


def read_only(case: Case, array: Floats) -> object:
    found = case.like(array)
    found.flags.writeable = False
    return found


def of_other_dtype(case: Case, array: Floats) -> object:
    case.fits = False
    return case.like(array).view(np.int32)


def of_other_shape(case: Case, array: Floats) -> object:
    case.fits = False
    return case.like(array).reshape(-1, 1)


ALIKE = [at_a_page, elsewhere, tensor]
ARRAYS: list[Callable[[Case, Floats], object]] = [
    *(ALIKE * 4),
    strided,
    read_only,
    of_other_dtype,
    of_other_shape,
]


def tied_in_the_program(case: Case) -> None:
    array = case.values()
    case.state |= {"tied": array, "twin": array.copy()}
    case.program["tied"] = case.program["twin"] = case.like(array)


def tied_in_the_checkpoint(case: Case) -> None:
    array = case.values()
    case.state["tied"] = case.state["twin"] = array
    case.program |= {"tied": case.like(array), "twin": case.like(array)}


def tied_in_both(case: Case) -> None:
    array = case.values()
    case.state["tied"] = case.state["twin"] = array
    case.program["tied"] = case.program["twin"] = case.like(array)


def overlapping(case: Case) -> None:
    array, row = case.values(), case.values()[:1]
    case.state |= {"whole": array, "row": row}
    both = case.room(array.nbytes + row.nbytes).view(np.float32)
    case.program["whole"] = both[: array.size].reshape(array.shape)
    case.program["row"] = both[array.size - 5 : array.size - 5 + row.size].reshape(row.shape)


def only_saved(case: Case) -> None:
    case.state["gone"], case.fits = case.values(), False


def only_in_the_program(case: Case) -> None:
    case.program["new"], case.fits = case.values(), False


def part(case: Case) -> None:
    array = case.values()
    case.state["part"] = Part(array, (9, array.shape[1]), (1, 0))
    case.program["part"] = Part(case.like(array), (9, array.shape[1]), (1, 0))


def other_part(case: Case) -> None:
    part(case)
    own = cast(Part, case.program["part"])
    case.program["part"], case.fits = Part(own.array, own.global_shape, (2, 0)), False


MORE = [
    tied_in_the_program,
    tied_in_the_checkpoint,
    tied_in_both,
    overlapping,
    only_saved,
    only_in_the_program,
    part,
    other_part,
]


def address(value: object) -> int:
    value = value.array if isinstance(value, Part) else value
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return value.ctypes.data if isinstance(value, np.ndarray) else 0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 999),
    st.lists(st.sampled_from(ARRAYS), min_size=1, max_size=3),
    st.none() | st.sampled_from(MORE),
)
def test_it_makes_no_difference_to_what_comes_back(
    seed: int, arrays: list[Callable[[Case, Floats], object]], more: Callable[[Case], None] | None
) -> None:
    case = Case(np.random.default_rng(seed))
    for number, make in enumerate(arrays):
        array, name = case.values(), f"a{number}"
        case.state[name] = torch.from_numpy(array) if make is tensor else array
        case.program[name] = make(case, array)
    if more is not None:
        more(case)
    case.state["tree"] = {"list": [1, "x"], "small": np.arange(4), 3: 0.5}
    case.program["tree"] = {"small": np.zeros(4, np.int64)}
    into: dict[Key, object] = {(name,): one for name, one in case.program.items()}
    if more is only_saved:
        into[("gone",)] = None
    with TemporaryDirectory(prefix="relight-targets-") as folder:
        manifest = saved(Path(folder), case.state)
        expected = load_shard(Path(folder), manifest, 0)
        found = load_shard(Path(folder), manifest, 0, into=into)
    assert exact(found) == exact(expected)
    assert all((margin == 7).all() for margin in case.margins)
    # Whose memory it is: the program's own where nothing speaks against it, and tied as it was.
    filled = {
        name for name, one in found.items() if 0 != address(one) == address(case.program.get(name))
    }
    own = {f"a{n}" for n, make in enumerate(arrays) if make in ALIKE}
    own |= {"tied", "twin"} if more is tied_in_both else {"part"} if more is part else set()
    assert filled == (own if case.fits else set())
    assert count_of_memories(found) == count_of_memories(expected)


def count_of_memories(state: State) -> int:
    return len({address(one) for one in state.values()})


def test_what_one_rank_has_saved_for_all_is_filled_too(tmp_path: Path) -> None:
    arrays = pair(1)
    epoch = claim_epoch(tmp_path, ONE)
    receipts = [save_shard(tmp_path, 1, ONE, n, 2, {"model": Replicated(arrays)}) for n in range(2)]
    manifest = commit(tmp_path, 1, ONE, epoch, receipts, {})
    for rank in range(2):
        own = pair(0)
        into: dict[Key, object] = {("model",): own}
        model = load_shard(tmp_path, manifest, rank, into=into)["model"]
        assert isinstance(model, dict)
        assert [address(model[name]) for name in own] == [address(one) for one in own.values()]
        assert exact(own) == exact(arrays)


def pair(seed: int) -> State:
    """Arrays of more than one block."""
    dice = np.random.default_rng(seed)
    return {"first": dice.random(1_500_000), "then": torch.from_numpy(dice.random(1_500_000))}


def test_after_damage_the_one_before_it_is_restored_whole(tmp_path: Path) -> None:
    """The newest is found damaged when most of it is in the program's arrays already."""
    own = pair(0)
    into: dict[Key, object] = {("model",): own}
    saved(tmp_path, {"model": pair(1)}, 10)
    newest = saved(tmp_path, {"model": pair(2)}, 20)
    shard = shard_path(tmp_path, 20, ONE, 0)
    data = bytearray(shard.read_bytes())
    data[data.index(np.asarray(pair(2)["then"])[-9:].tobytes())] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CheckpointDamaged, match="model/then, block 1"):
        load_shard(tmp_path, newest, 0, into=into)
    assert exact(own["first"]) == exact(pair(2)["first"])
    shard.unlink()
    before = newest_valid(tmp_path)
    assert before is not None
    assert (
        exact(load_shard(tmp_path, before, 0, into=into)["model"]) == exact(own) == exact(pair(1))
    )
