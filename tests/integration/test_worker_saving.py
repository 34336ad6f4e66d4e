"""Saves in the background: the values of the moment, one at a time, and every fault is reported."""

from __future__ import annotations

import copy
import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from relight.resilience.worker.saving import InBackground, State, Target
from relight.resilience.worker.world import World
from relight.storage.checkpointer import SaveFailed, load_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import StateRefused
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt
from relight.storage.snapshot import take_rest

ONE = Incarnation("1.0", 0)
MIB = 1024**2


class Rank:
    """A rank that saves, and the test that looks after its writer."""

    def __init__(
        self, directory: Path, limit_bytes: int = 64 * MIB, *, overlap: bool = False
    ) -> None:
        self.directory = directory
        self.told: list[str] = []
        self.receipts: list[Receipt] = []
        self.failures: list[SaveFailed | OSError] = []
        self.counted: list[int] = []  # bytes that were written, of the newest save
        self.totals: list[int] = []  # of those that came to their end
        self.saving = InBackground(limit_bytes, self.told.append, overlap=overlap)
        self.epoch = claim_epoch(directory, ONE)

    def save(self, step: int, state: State) -> bool:
        target = Target(self.directory, step, ONE, World(), Notes(), shown=self.shown)
        return self.saving.save(target, state, self.conclude)

    @contextmanager
    def shown(self, total_bytes: int) -> Iterator[Callable[[int], None]]:
        self.counted = []
        yield self.counted.append
        self.totals.append(total_bytes)

    def conclude(self, write: Callable[[], Receipt]) -> bool:
        try:
            self.receipts.append(write())
        except (SaveFailed, OSError) as error:
            self.failures.append(error)
            return False
        return True

    @staticmethod
    def writer() -> psutil.Process:
        (process,) = psutil.Process().children()
        return process

    def saved(self, step: int) -> Mapping[str, object]:
        assert self.saving.settle()
        receipts = [receipt for receipt in self.receipts if receipt.step == step]
        return load_shard(
            self.directory, commit(self.directory, step, ONE, self.epoch, receipts, {}), 0
        )


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    one = Rank(tmp_path)
    yield one
    one.saving.close()


def test_saves_the_values_of_the_moment(rank: Rank, tmp_path: Path) -> None:
    writer = rank.writer()
    file = tmp_path / "mapped"
    file.write_bytes(bytes(range(256)) * 16)
    mapped = np.memmap(file, np.uint8, "r+")
    whole = np.arange(3 * MIB, dtype=np.uint8)
    grid = np.arange(12.0).reshape(3, 4)
    weight = torch.arange(MIB, dtype=torch.float32)
    settings = {"rates": [0.1, 0.2]}
    writer.suspend()
    state = {
        "whole": whole,
        "transposed": grid.T,
        "strided": whole[::3],
        "mapped": mapped,
        "weight": weight,
        "tied": weight,
        "part": weight[5:9],
        "flipped": torch.ones(2, 3, dtype=torch.complex64).conj().T,
        "bits": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
        "none": torch.empty(0, 3),
        "settings": settings,
        "text": b"x" * 1000,
    }
    expected = {
        name: value.clone() if isinstance(value, torch.Tensor) else np.copy(value)
        for name, value in state.items()
        if isinstance(value, torch.Tensor | np.ndarray)
    }
    assert rank.save(1, state)
    for array in (whole, grid, mapped):
        array[...] = 77
    weight.fill_(-1)
    settings["rates"].append(0.3)
    writer.resume()
    saved = rank.saved(1)
    assert rank.totals == [sum(rank.counted)] == [rank.receipts[0].payload_bytes]
    for name, value in expected.items():
        found = saved[name]
        if isinstance(value, torch.Tensor):
            assert isinstance(found, torch.Tensor)
            assert torch.equal(found, value)
        else:
            assert isinstance(found, np.ndarray)
            np.testing.assert_array_equal(found, value)
    assert saved["tied"] is saved["weight"]
    assert (saved["settings"], saved["text"]) == ({"rates": [0.1, 0.2]}, b"x" * 1000)


def test_follows_arrays_that_move_and_grow(rank: Rank) -> None:
    for step in range(1, 4):
        assert rank.save(step, {"w": np.full(step * 12 * MIB, step, np.uint8)})
    for step in range(1, 4):
        found = rank.saved(step)["w"]
        assert isinstance(found, np.ndarray)
        assert (found.size, found.min(), found.max()) == (step * 12 * MIB, step, step)


def test_the_next_save_waits_for_the_one_before(rank: Rank) -> None:
    writer = rank.writer()
    writer.suspend()
    assert rank.save(1, {"n": np.full(100, 1)})
    finished_before: list[int] = []

    def save_next() -> None:
        rank.save(2, {"n": np.full(100, 2)})
        finished_before.extend(receipt.step for receipt in rank.receipts)

    other = threading.Thread(target=save_next)
    other.start()
    writer.resume()
    other.join()
    assert 1 in finished_before
    for step in (1, 2):
        np.testing.assert_array_equal(rank.saved(step)["n"], np.full(100, step))


def test_a_killed_writer_is_reported_and_replaced(rank: Rank) -> None:
    writer = rank.writer()
    writer.suspend()
    assert rank.save(1, {"w": np.zeros(MIB)})
    writer.kill()
    assert not rank.saving.settle()
    assert [type(failure) for failure in rank.failures] == [SaveFailed]
    assert "writer process ended with -9" in str(rank.failures[0])
    assert rank.save(2, {"w": np.ones(9)})
    np.testing.assert_array_equal(rank.saved(2)["w"], np.ones(9))


def test_a_writer_that_died_idle_is_replaced(rank: Rank) -> None:
    writer = rank.writer()
    writer.kill()
    writer.wait()
    assert rank.save(1, {"n": 1})
    assert rank.saved(1) == {"n": 1}


def test_a_full_disk_is_reported(small_disk: Path) -> None:
    rank = Rank(small_disk)
    assert rank.save(1, {"w": np.ones(20 * MIB, np.uint8)})
    assert not rank.saving.settle()
    assert [failure.errno for failure in rank.failures] == [errno.ENOSPC]
    assert rank.save(2, {"w": np.ones(MIB, np.uint8)})
    assert rank.saved(2)["w"] is not None
    rank.saving.close()


def test_what_cannot_be_stored_is_refused_at_the_call(rank: Rank) -> None:
    with pytest.raises(StateRefused, match="odd"):
        rank.save(1, {"odd": object()})
    assert (rank.receipts, rank.failures) == ([], [])


def test_a_state_beyond_the_bound_is_saved_at_once_and_told_once(tmp_path: Path) -> None:
    rank = Rank(tmp_path, limit_bytes=MIB)
    for step in (1, 2):
        assert rank.save(step, {"w": np.zeros(2 * MIB, np.uint8)})
        assert rank.receipts[-1].step == step
    assert len(rank.told) == 1
    assert "2 MiB" in rank.told[0]
    rank.saving.close()


def test_a_state_without_room_in_memory_is_saved_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relight.resilience.worker.saving.room_bytes", lambda: MIB)
    rank = Rank(tmp_path)
    rank.saving.prepare({"w": np.zeros(2 * MIB, np.uint8)})
    assert rank.save(1, {"w": np.zeros(2 * MIB, np.uint8)})
    assert rank.receipts[-1].step == 1
    assert "1 MiB of memory are left" in rank.told[0]
    rank.saving.close()


def test_a_copy_is_written_at_once_where_no_thread_can_be_started(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    rank.saving.prepare({"w": np.arange(1000)})
    assert rank.save(1, {"w": np.arange(1000)})
    assert rank.saving.settle()
    assert rank.told == ["steps wait for each save: no thread can be started"]
    assert [receipt.step for receipt in rank.receipts] == [1]


def test_prepared_memory_is_there_before_the_first_save(rank: Rank) -> None:
    rank.saving.prepare({"w": np.zeros(20 * MIB, np.uint8)})
    assert rank.saving.settle()
    area, *_ = [fd for fd in Path("/proc/self/fd").iterdir() if "relight-staging" in _target(fd)]
    assert area.stat().st_blocks * 512 >= 20 * MIB
    assert rank.save(1, {"w": np.ones(20 * MIB, np.uint8)})
    np.testing.assert_array_equal(rank.saved(1)["w"], np.ones(20 * MIB, np.uint8))


def _target(link: Path) -> str:
    return str(link.readlink()) if link.is_symlink() else ""


def test_the_writer_knows_no_torch(rank: Rank) -> None:
    rank.save(1, {"w": torch.ones(2 * MIB)})
    rank.saved(1)
    libraries = {Path(mapping.path).name for mapping in rank.writer().memory_maps()}
    assert not [name for name in libraries if "torch" in name]


class SlowCopies:
    """Holds the copies that may wait until the test lets them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        monkeypatch.setattr("relight.resilience.worker.saving.take_rest", self._take_rest)

    def _take_rest(self, *order: Any) -> None:
        assert self.go.wait(30)
        take_rest(*order)


@pytest.fixture
def overlapped(tmp_path: Path) -> Iterator[Rank]:
    one = Rank(tmp_path, overlap=True)
    yield one
    one.saving.close()


def trained() -> tuple[Any, torch.optim.Optimizer, Any]:
    model = torch.nn.Sequential(
        torch.nn.Linear(200, 200), torch.nn.BatchNorm1d(20_000, affine=False)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return model, optimizer, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def test_an_optimizer_waits_for_the_copy_and_all_else_is_copied_at_once(
    overlapped: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = SlowCopies(monkeypatch)
    model, optimizer, state = trained()
    expected = copy.deepcopy(state)
    assert overlapped.save(1, state)
    stall_s = overlapped.saving.stall_s
    model[1](torch.rand(4, 20_000))  # changes buffers, which no optimizer holds
    stepped = threading.Thread(target=optimizer.step)
    stepped.start()
    stepped.join(0.2)
    assert stepped.is_alive()
    copies.go.set()
    stepped.join()
    assert stall_s is not None
    assert (overlapped.saving.stall_s or 0) > stall_s
    loaded: Any = overlapped.saved(1)
    for name, value in expected["model"].items():
        assert torch.equal(loaded["model"][name], value), name
    moments = loaded["optimizer"]["state"][0]
    assert torch.equal(moments["exp_avg"], expected["optimizer"]["state"][0]["exp_avg"])
    assert not torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], moments["exp_avg"])


def test_a_save_that_comes_too_early_says_how_long_it_waited(
    overlapped: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = SlowCopies(monkeypatch)
    _, _, state = trained()
    assert overlapped.save(1, state)
    assert overlapped.saving.behind_s == 0.0
    second = threading.Thread(target=overlapped.save, args=(2, state))
    second.start()
    second.join(0.2)
    assert second.is_alive(), "one save at a time"
    copies.go.set()
    second.join()
    assert 0.0 < overlapped.saving.behind_s <= (overlapped.saving.stall_s or 0.0)
    assert overlapped.saving.staged_bytes > 3 * 200 * 200 * 4
    overlapped.saved(2)


def test_a_change_behind_the_optimizer_fails_the_save_and_not_the_next(
    overlapped: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = SlowCopies(monkeypatch)
    model, optimizer, state = trained()
    assert overlapped.save(1, state)
    with torch.no_grad():
        model[0].weight.clamp_(0, 0.01)
    copies.go.set()
    assert not overlapped.saving.settle()
    assert "changed by something else" in str(overlapped.failures[0])
    optimizer.step()
    assert overlapped.save(2, state)
    loaded: Any = overlapped.saved(2)
    assert torch.equal(loaded["model"]["0.weight"], model[0].weight)
