"""What is asked of CUDA for a save from GPU memory: pinned once, queued, awaited, unpinned in time.

There is no GPU here: tensors of the processor stand for those of one, and a few functions of
torch.cuda are replaced. `tests/gpu` and `scripts/gpu_check` have the real ones.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from relight.storage import gpu_copy, snapshot
from relight.storage.checkpointer import SaveFailed, load_shard, save_shard, source_of
from relight.storage.commit import claim_epoch, commit
from relight.storage.gpu_pieces import BUFFER_BYTES, GpuPieces
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.output import Output
from relight.storage.page_memory import PIECE_BYTES
from relight.storage.snapshot import Order
from relight.storage.staging import Staging
from relight.storage.torch_state import form_of

State = dict[str, torch.Tensor]
ONE = Incarnation("1.0", 0)


class Cuda:
    """Copies are done when their stream is awaited, and not before; registered memory counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.registered: dict[int, int] = {}
        self.calls: list[str] = []
        self.streams: list[Stream] = []
        self.pinned_copies = 0
        self._here = threading.local()
        monkeypatch.setattr(gpu_copy, "is_on_gpu", lambda value: isinstance(value, torch.Tensor))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: self.new_stream())
        monkeypatch.setattr(torch.cuda, "stream", self.inside)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "cudart", lambda: self)
        monkeypatch.setattr(
            torch.Tensor, "copy_", lambda target, data, **how: self.copy(target, data, **how)
        )

    def new_stream(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    @property
    def queued(self) -> int:
        """Copies that are under way."""
        return sum(len(stream.queued) for stream in self.streams)

    @contextmanager
    def inside(self, stream: Stream) -> Iterator[None]:
        self._here.stream = stream
        yield
        self._here.stream = None

    def copy(self, target: torch.Tensor, data: torch.Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        begin = target.data_ptr()
        self.pinned_copies += any(
            at <= begin and begin + target.numel() <= at + size
            for at, size in list(self.registered.items())
        )
        self._here.stream.queued.append((target, data))

    def cudaHostRegister(self, at: int, size: int, flags: int) -> int:
        self.calls.append("register")
        if self.refuses:
            return 2
        assert flags == 1
        self.registered[at] = size
        return 0

    def cudaHostUnregister(self, at: int) -> int:
        end = at + self.registered[at]
        under_way = [target for stream in self.streams for target, _ in stream.queued]
        assert not any(at <= target.data_ptr() < end for target in under_way)
        self.calls.append("unregister")
        del self.registered[at]
        return 0


class Stream:
    def __init__(self) -> None:
        self.queued: list[tuple[torch.Tensor, torch.Tensor]] = []

    def synchronize(self) -> None:
        for target, data in self.queued:
            target.numpy()[:] = data.numpy()
        self.queued.clear()


@pytest.fixture
def staging() -> Iterator[Staging]:
    made = Staging.create()
    yield made
    made.close()


def taken(staging: Staging, state: State) -> list[bytes]:
    """What lies in the staging area after a snapshot."""
    source = source_of(1, ONE, 0, 1, state, Notes())
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
    assert cuda.queued == 0


class Failing:
    """Queues copies, but not that of one tensor."""

    def __init__(self, queue: object, bad: torch.Tensor) -> None:
        self._queue, self._bad = queue, bad

    def __call__(self, memory: object, piece: gpu_copy.GpuPiece) -> None:
        if piece.value is self._bad:
            raise RuntimeError("out of memory")
        self._queue(memory, piece)  # type: ignore[operator]


@pytest.mark.parametrize("refuses", [False, True])
def test_a_save_that_steps_wait_for_comes_through_pinned_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses: bool
) -> None:
    """All arrays but the small ones, of several blocks and in any order."""
    cuda, saved = Cuda(monkeypatch, refuses=refuses), state(3000)
    receipt = save_shard(tmp_path, 1, ONE, 0, 1, saved)
    assert (cuda.registered, cuda.queued) == ({}, 0)
    large = [one for one in expected(saved) if len(one) > 100]
    parts = sum(-(-len(one) // BUFFER_BYTES) for one in large)
    assert cuda.pinned_copies == (0 if refuses else parts)
    manifest = commit(tmp_path, 1, ONE, claim_epoch(tmp_path, ONE), [receipt], {})
    found = {
        name: one
        for name, one in load_shard(tmp_path, manifest, 0).items()
        if isinstance(one, torch.Tensor)
    }
    assert found.keys() == saved.keys()
    assert expected(found) == expected(saved)


def test_the_next_part_is_on_its_way_while_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, value = Cuda(monkeypatch), torch.arange(5 * BUFFER_BYTES // 4, dtype=torch.int32)
    form, data = form_of(value), value.numpy().tobytes()
    with GpuPieces() as pieces:
        for start in range(0, len(data), PIECE_BYTES):
            assert (
                pieces.piece(form, value, start, start + PIECE_BYTES)
                == (data[start : start + PIECE_BYTES])
            )
            # Nothing follows the last part, nor a block: that is maybe for another thread.
            assert cuda.queued == (start // BUFFER_BYTES not in (3, 4))
        assert len(cuda.registered) == 1
    assert cuda.calls == ["register", "unregister"]


def test_memory_is_given_back_when_the_disk_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cuda = Cuda(monkeypatch)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Output, "_write", full)
    with pytest.raises(SaveFailed):
        save_shard(tmp_path, 1, ONE, 0, 1, state(3000))
    assert cuda.calls.count("register") == cuda.calls.count("unregister") > 0
    assert cuda.queued == 0
