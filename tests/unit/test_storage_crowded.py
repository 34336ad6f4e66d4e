"""A machine that gives no more threads or memory, and memory that changes while it is written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from relight.storage import blocks, choose, output
from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import NoValidCheckpoint, SaveFailed, StateRefused
from relight.storage.layout import Incarnation, step_name
from relight.storage.output import Output, Run
from relight.storage.way import USUAL

ONE = Incarnation("1.0", 0)


def only(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Starts no more than so many."""
    start = threading.Thread.start
    left = [None] * threads

    def start_or_fail(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)


@pytest.mark.parametrize("threads", [0, 1, 9])
def test_work_is_done_in_as_many_threads_as_there_are(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    only(monkeypatch, threads)
    before, seen = threading.active_count(), set()

    def work(number: int) -> int:
        seen.add(threading.get_ident())
        if number == 70:
            raise ValueError(number)
        return number**2

    assert list(blocks.in_parallel(work, range(50), 4)) == [n**2 for n in range(50)]
    assert (threading.get_ident() in seen) == (threads == 0)
    with pytest.raises(ValueError, match="70"):
        list(blocks.in_parallel(work, range(100), 4))
    assert threading.active_count() == before


def test_work_that_nobody_takes_to_its_end_does_not_keep_python_from_ending() -> None:
    """As when a traceback holds on to it."""
    unfinished = (
        "from relight.storage.blocks import in_parallel\n"
        "results = in_parallel(abs, range(9), 2)\n"
        "next(results)\n"
    )
    assert subprocess.run([sys.executable, "-P", "-c", unfinished], timeout=60).returncode == 0


def test_a_state_is_saved_and_restored_without_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, 0)
    state = {"w": np.arange(3 << 20, dtype=float)}
    receipt = save_shard(tmp_path, 1, ONE, 0, 1, state)
    manifest = commit(tmp_path, 1, ONE, claim_epoch(tmp_path, ONE), [receipt], {})
    assert np.array_equal(load_shard(tmp_path, manifest, 0)["w"], state["w"])  # type: ignore[arg-type]


def test_the_digest_is_of_what_is_written_where_nothing_is_written_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program changes its memory between the two."""
    memory = bytearray(b"a" * 3_000_000)
    view, pwrite = memoryview(memory), os.pwrite

    def change_and_write(fd: int, data: memoryview, at: int) -> int:
        memory[:] = b"b" * len(memory)
        return pwrite(fd, data, at)

    monkeypatch.setattr(output, "_open_direct", lambda path: None)
    monkeypatch.setattr(os, "pwrite", change_and_write)
    path = tmp_path / "file"
    path.touch()
    with Output(path, USUAL) as written:
        digests = written.write([Run(0, len(memory), lambda start, stop: view[start:stop])])
    assert digests == [blocks.digest(path.read_bytes())]


def test_a_save_that_finds_no_memory_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size_bytes: int) -> memoryview:
        raise MemoryError

    monkeypatch.setattr("relight.storage.page_memory.in_huge_pages", full)
    with pytest.raises(SaveFailed, match=r"Cannot allocate memory.*more memory") as raised:
        save_shard(tmp_path, 1, ONE, 0, 1, {"w": np.arange(20_000.0)})
    assert raised.value.errno == errno.ENOMEM
    assert not list(tmp_path.rglob("*.h5"))


def test_a_directory_that_is_gone_is_no_lack_of_space(tmp_path: Path) -> None:
    gone = tmp_path / "scratch"
    with pytest.raises(SaveFailed) as raised:
        save_shard(gone / "checkpoints", 1, ONE, 0, 1, {"w": np.arange(3)})
    assert f"No such file or directory: {gone}; was it deleted, moved or unmounted?" in str(
        raised.value
    )
    assert "space" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_by_name(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(StateRefused, match="ragged"):
        save_shard(tmp_path, 1, ONE, 0, 1, {"ragged": nested})


@pytest.mark.parametrize("name", ["MANIFEST.json", "shard-00000.h5"])
def test_a_file_system_that_does_not_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    epoch = claim_epoch(tmp_path, ONE)
    for step in (1, 2):
        receipt = save_shard(tmp_path, step, ONE, 0, 1, {"w": np.arange(3)})
        commit(tmp_path, step, ONE, epoch, [receipt], {})
    silent, stat, read = [2, 2], Path.stat, Path.read_bytes

    def require_answer(path: Path) -> None:
        if path.name == name and silent and step_name(silent[0]) in path.parts:
            silent.pop()
            raise OSError(errno.EIO, "the client was evicted")

    def stat_or_fail(path: Path) -> os.stat_result:
        require_answer(path)
        return stat(path)

    def read_or_fail(path: Path) -> bytes:
        require_answer(path)
        return read(path)

    monkeypatch.setattr(Path, "stat", stat_or_fail)
    monkeypatch.setattr(Path, "read_bytes", read_or_fail)
    monkeypatch.setattr(choose, "_PAUSE_S", 0)
    found = choose.newest_valid(tmp_path)
    assert not silent
    assert found is not None
    assert found.step == 2


def test_many_that_do_not_answer_are_waited_for_as_long_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = claim_epoch(tmp_path, ONE)
    for step in range(20):
        receipt = save_shard(tmp_path, step, ONE, 0, 1, {"w": np.arange(3)})
        commit(tmp_path, step, ONE, epoch, [receipt], {})
    looks = 0

    def fail(_path: Path) -> bytes:
        nonlocal looks
        looks += 1
        raise OSError(errno.EIO, "the client was evicted")

    monkeypatch.setattr(Path, "read_bytes", fail)
    monkeypatch.setattr(choose, "_PATIENCE_S", 0.02)
    monkeypatch.setattr(choose, "_PAUSE_S", 0.01)
    with pytest.raises(NoValidCheckpoint):
        choose.newest_valid(tmp_path)
    assert 20 < looks < 25
