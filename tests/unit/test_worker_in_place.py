"""A program's arrays are filled where they lie, and only when that is all its load would do."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from storage_roundtrip import exact

from relight.resilience.worker.agreement import GatherAll
from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.errors import RestoreMismatch
from relight.resilience.worker.own_checkpoints import OwnCheckpoints
from relight.resilience.worker.protected import PerRank, protect_object
from relight.resilience.worker.state import ProgramState
from relight.resilience.worker.world import World
from relight.storage.checkpointer import save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.condition import examine
from relight.storage.errors import CheckpointDamaged, NoValidCheckpoint, RestoreRefused
from relight.storage.input import Input
from relight.storage.layout import Incarnation, manifest_path, shard_path, step_dir
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.resize import load_for

ONE = Incarnation("1.0", 0)
WIDTH = 200  # of weights that get datasets of their own


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.two = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WIDTH)
        self.head.weight = self.two.weight
        self.register_buffer("seen", torch.zeros(WIDTH, WIDTH))
        self.register_buffer("scratch", torch.zeros(WIDTH, WIDTH), persistent=False)


def swap(state: dict[str, torch.Tensor], prefix: str, *_: object) -> None:
    one, two = prefix + "one.weight", prefix + "two.weight"
    state[one], state[two] = state[two], state[one]


class Transposes(Net):
    """As a program does that has changed its mind about its layout."""

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], *args: bool) -> object:
        turned = {key: one.T if one.ndim == 2 else one for key, one in state_dict.items()}
        return super().load_state_dict(turned, *args)


class Doubles(torch.nn.Linear):
    def _load_from_state_dict(
        self, state: dict[str, torch.Tensor], prefix: str, *more: object
    ) -> None:
        state[prefix + "weight"] = state[prefix + "weight"].mul_(2)
        super()._load_from_state_dict(state, prefix, *more)


class Remembers(Net):
    def get_extra_state(self) -> object:
        return torch.ones(WIDTH, WIDTH)

    def set_extra_state(self, state: object) -> None:
        self.scratch = state


def with_hook() -> Net:
    net = Net()
    net.register_load_state_dict_pre_hook(lambda _, *args: swap(*args))  # type: ignore[no-untyped-call]
    return net


def with_own_layer() -> Net:
    net = Net()
    net.one = Doubles(WIDTH, WIDTH)
    return net


def of_other_dtype() -> Net:
    return Net().to(torch.bfloat16)


def strided() -> Net:
    net = Net()
    net.two.weight = net.head.weight = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH).T)
    net.one.weight = torch.nn.Parameter(torch.zeros(WIDTH, 2 * WIDTH)[:, ::2])
    return net


class Program:
    def __init__(self, net: torch.nn.Module, seed: int) -> None:
        torch.manual_seed(seed)
        dice = np.random.default_rng(seed)
        self.net = net
        with torch.no_grad():
            for tensor in chain(net.parameters(), net.buffers()):
                tensor.copy_(torch.rand(tensor.shape))
        self.field = dice.random((WIDTH, WIDTH))
        self.weights = torch.from_numpy(dice.random((WIDTH, WIDTH)))
        self.best = {"field": self.field.copy()}
        self.state = ProgramState(rng=True)
        for name, thing in vars(self).items():
            if name != "state":
                self.state.add(name, thing)

    def values(self) -> object:
        return exact([{**self.net.state_dict()}, self.field, self.weights, self.best])

    def addresses(self) -> dict[str, int]:
        found = {
            name: address(one)
            for name, one in self.net.state_dict().items()
            if not name.endswith("extra_state")
        }
        return found | {"field": address(self.field), "weights": address(self.weights)}


def address(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    assert isinstance(value, np.ndarray)
    return value.ctypes.data


def checkpoint(directory: Path, step: int, make: Callable[[], Net] = Net) -> Program:
    """The program whose state it has."""
    program = Program(make(), step)
    receipt = save_shard(directory, step, ONE, 0, 1, program.state.capture())
    commit(directory, step, ONE, claim_epoch(directory, ONE), [receipt], {})
    return program


def restored(
    directory: Path,
    program: Program,
    *,
    in_place: bool = True,
    agree: GatherAll = lambda word: [word],
) -> Mapping[str, object]:
    def needs() -> Needs:
        found = program.state.needs()
        return found if in_place else replace(found, into={})

    environment = read_environment({"RELIGHT_CHECKPOINT_STAGING": "0"}, directory, None)
    found = OwnCheckpoints(directory, environment, World(), agree).restore(needs)
    assert found is not None
    return found.state


def filled(program: Program, state: Mapping[str, object]) -> set[str]:
    """What of the state lies in the program's own memory."""
    objects = state["objects"]
    assert isinstance(objects, dict)
    found = {**objects["net"], "field": objects["field"], "weights": objects["weights"]}
    own = program.addresses()
    return {name for name, one in found.items() if address(one) == own.get(name)}


@pytest.mark.parametrize(
    "make",
    [Net, with_hook, with_own_layer, Transposes, Remembers, of_other_dtype, strided],
)
def test_whatever_a_module_does_it_gets_the_same(tmp_path: Path, make: Callable[[], Net]) -> None:
    checkpoint(tmp_path, 1, Remembers if make is Remembers else Net)
    one, other = Program(make(), 2), Program(make(), 3)
    before = one.addresses()
    state = restored(tmp_path, one)
    of_net = filled(one, state) - {"field", "weights"}
    one.state.load(state)
    other.state.load(restored(tmp_path, other, in_place=False))
    assert one.values() == other.values()
    assert one.addresses() == before
    weights = {"one.weight", "two.weight", "head.weight", "seen"}
    assert of_net == (weights if make is Net else {"seen"} if make is strided else set())


def test_nothing_is_written_over_when_something_does_not_fit(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    net = Net()
    net.seen = torch.zeros(WIDTH, WIDTH + 1)
    program = Program(net, 2)
    before = program.values()
    state = restored(tmp_path, program)
    assert program.values() == before
    with pytest.raises(RestoreMismatch, match="size mismatch"):
        program.state.load(state)


def test_after_damage_the_checkpoint_before_it_is_there_whole(tmp_path: Path) -> None:
    expected = checkpoint(tmp_path, 1).values()
    spoil(tmp_path, checkpoint(tmp_path, 2), 2)
    program = Program(Net(), 3)
    program.state.load(restored(tmp_path, program))
    assert program.values() == expected


@pytest.mark.parametrize("gone", [False, True])
def test_with_none_left_after_damage_nobody_starts_from_scratch(tmp_path: Path, gone: bool) -> None:
    """Also when it was deleted meanwhile, which leaves no trace of it."""
    spoil(tmp_path, checkpoint(tmp_path, 1), 1)

    def agree(word: str) -> list[str]:
        if gone and "damaged" in word:
            shutil.rmtree(step_dir(tmp_path, 1))
        return [word]

    with pytest.raises(NoValidCheckpoint):
        restored(tmp_path, Program(Net(), 2), agree=agree)


def test_what_a_rank_has_for_itself_outlives_a_damaged_checkpoint(tmp_path: Path) -> None:
    """The one before it is of fewer ranks: this one keeps what the program has set."""

    def program(value: float) -> tuple[ProgramState, np.ndarray]:
        state, array = ProgramState(rng=False), np.full((2, WIDTH, WIDTH), value, float)
        state.add("own", PerRank(array))
        return state, array

    epoch = claim_epoch(tmp_path, ONE)
    for ranks in (2, 3):
        states = [program(10 * ranks + rank)[0].capture() for rank in range(ranks)]
        receipts = [
            save_shard(tmp_path, ranks, ONE, rank, ranks, state)
            for rank, state in enumerate(states)
        ]
        commit(tmp_path, ranks, ONE, epoch, receipts, {})
    before, damaged = (
        Manifest.parse(manifest_path(tmp_path, ranks).read_bytes()) for ranks in (2, 3)
    )
    shard = shard_path(tmp_path, 3, ONE, 2)
    saved = np.full(WIDTH, 32.0).tobytes()
    shard.write_bytes(shard.read_bytes().replace(saved, b"?" * len(saved), 1))
    state, array = program(1)
    with pytest.raises(CheckpointDamaged):
        load_for(tmp_path, damaged, 2, 3, state.needs())
    loaded = load_for(tmp_path, before, 2, 3, state.needs())
    state.load(loaded.state, loaded.missing)
    assert (array == 1).all()


def test_memory_that_others_write_to_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = checkpoint(tmp_path, 1).values()
    program, really = Program(Net(), 2), Input._fill_piece
    touched: list[memoryview] = []

    def fill_piece(self: Input, direct: int | None, at: int, rest: memoryview) -> bool:
        whole = really(self, direct, at, rest)
        if np.shares_memory(np.frombuffer(rest, np.uint8), program.field):
            rest[0] ^= 1
            touched.append(rest)
        return whole

    monkeypatch.setattr(Input, "_fill_piece", fill_piece)
    monkeypatch.setattr(Input, "_direct_fd", lambda _: None)
    program.state.load(restored(tmp_path, program))
    assert touched
    assert program.values() == expected


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_memory_that_cannot_be_written_to_speaks_against_the_program(tmp_path: Path) -> None:
    expected = checkpoint(tmp_path / "saved", 1).weights
    table = tmp_path / "table"
    table.write_bytes(expected.numpy().tobytes())
    with table.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    program = Program(Net(), 2)
    program.state._objects["weights"] = protect_object(
        "weights", torch.frombuffer(mapped, dtype=torch.float64).reshape(WIDTH, WIDTH)
    )
    with pytest.raises(RestoreRefused):
        restored(tmp_path / "saved", program)
    assert examine(tmp_path / "saved", 1).condition == "valid"


def test_a_process_that_may_open_no_more_files_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        checkpoint(tmp_path, step)
    program, really = Program(Net(), 3), os.open

    def full(path: str | Path, *how: int) -> int:
        if str(path).endswith(".h5"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really(path, *how)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="Too many open files"):
        restored(tmp_path, program)
    assert [examine(tmp_path, step).condition for step in (1, 2)] == ["valid", "valid"]


def spoil(directory: Path, program: Program, step: int) -> None:
    """A bit of the last large array changes."""
    shard = shard_path(directory, step, ONE, 0)
    data = bytearray(shard.read_bytes())
    data[data.index(program.weights.numpy()[-9:].tobytes())] ^= 1
    shard.write_bytes(data)
