"""What is asked of CUDA for a save from GPU memory: pinned once, queued, awaited, unpinned in time.

There is no GPU here: tensors of the processor stand for those of one, and a few functions of
torch.cuda are replaced. `tests/gpu` and `scripts/gpu_check` have the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from relight.storage import gpu_copy, snapshot
from relight.storage.checkpointer import source_of
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.snapshot import Order
from relight.storage.staging import Staging

State = dict[str, torch.Tensor]


class Cuda:
    """Copies are done when their stream is awaited, and not before; registered memory counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.registered: dict[int, int] = {}
        self.calls: list[str] = []
        self.queued: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.pinned_copies = 0
        monkeypatch.setattr(gpu_copy, "is_on_gpu", lambda value: isinstance(value, torch.Tensor))
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: SimpleNamespace(synchronize=self.wait))
        monkeypatch.setattr(torch.cuda, "stream", self.inside)
        monkeypatch.setattr(torch.cuda, "device", self.inside)
        monkeypatch.setattr(torch.cuda, "cudart", lambda: self)
        monkeypatch.setattr(
            torch.Tensor, "copy_", lambda target, data, **how: self.copy(target, data, **how)
        )

    @contextmanager
    def inside(self, _: object) -> Iterator[None]:
        yield

    def copy(self, target: torch.Tensor, data: torch.Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        begin = target.data_ptr()
        self.pinned_copies += any(
            at <= begin and begin + target.numel() <= at + size
            for at, size in self.registered.items()
        )
        self.queued.append((target, data))

    def wait(self) -> None:
        for target, data in self.queued:
            target.numpy()[:] = data.numpy()
        self.queued.clear()

    def cudaHostRegister(self, at: int, size: int, flags: int) -> int:
        self.calls.append("register")
        if self.refuses:
            return 2
        assert flags == 1
        assert not self.registered
        self.registered[at] = size
        return 0

    def cudaHostUnregister(self, at: int) -> int:
        self.calls.append("unregister")
        del self.registered[at]
        return 0


@pytest.fixture
def staging() -> Iterator[Staging]:
    made = Staging.create()
    yield made
    made.close()


def taken(staging: Staging, state: State) -> list[bytes]:
    """What lies in the staging area after a snapshot."""
    source = source_of(1, Incarnation("1.0", 0), 0, 1, state, Notes())
    place = snapshot.take(staging, Order(source=source, started_s=0.0))
    leaves = snapshot.read(staging, place).source.leaves
    return [bytes(leaf.value) for leaf in leaves if isinstance(leaf.value, memoryview)]


def state(rows: int) -> State:
    values = torch.arange(rows * 700, dtype=torch.float32).reshape(rows, 700)
    return {
        "whole": values,
        "turned": values.T,
        "half": values.to(torch.bfloat16)[:, ::2],
        "conj": torch.complex(values, -values).conj(),
        "small": torch.ones(3),
    }


def expected(state: State) -> list[bytes]:
    return [
        one.resolve_conj().contiguous().view(torch.uint8).numpy().tobytes()
        for one in state.values()
    ]


@pytest.mark.parametrize("refuses", [False, True])
def test_values_are_there_when_the_call_returns(
    monkeypatch: pytest.MonkeyPatch, staging: Staging, refuses: bool
) -> None:
    """Also where the memory cannot be pinned, which is tried once."""
    cuda = Cuda(monkeypatch, refuses=refuses)
    for _ in range(2):
        assert taken(staging, state(60)) == expected(state(60))
    assert cuda.calls == ["register"]
    assert (cuda.pinned_copies > 0) is not refuses


def test_memory_is_unpinned_before_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, staging = Cuda(monkeypatch), Staging.create()
    assert taken(staging, state(60)) == expected(state(60))
    assert taken(staging, state(4000)) == expected(state(4000))  # it grows
    staging.close()
    assert cuda.calls == ["register", "unregister", "register", "unregister"]


def test_a_copy_that_fails_leaves_nothing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    memory = np.zeros(64, np.uint8)
    good, bad = torch.ones(8), torch.ones(8)
    monkeypatch.setattr(gpu_copy, "_queue", Failing(gpu_copy._queue, bad))
    pieces = [gpu_copy.GpuPiece(0, good, 0, 32), gpu_copy.GpuPiece(32, bad, 0, 32)]
    with pytest.raises(RuntimeError, match="out of memory"), gpu_copy.copying(memory, pieces):
        pass
    assert cuda.queued == []


class Failing:
    """Queues copies, but not that of one tensor."""

    def __init__(self, queue: object, bad: torch.Tensor) -> None:
        self._queue, self._bad = queue, bad

    def __call__(self, memory: object, piece: gpu_copy.GpuPiece) -> None:
        if piece.value is self._bad:
            raise RuntimeError("out of memory")
        self._queue(memory, piece)  # type: ignore[operator]
