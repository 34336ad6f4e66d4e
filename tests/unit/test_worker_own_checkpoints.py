"""Ranks without a supervisor: a save that fails is told, and what one cannot do, none can."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.worker import own_checkpoints
from relight.resilience.worker.agreement import together
from relight.resilience.worker.environment import read_environment
from relight.resilience.worker.errors import OtherRankFailed
from relight.resilience.worker.own_checkpoints import OwnCheckpoints
from relight.resilience.worker.world import World
from relight.storage.checkpointer import save_shard
from relight.storage.choose import candidates
from relight.storage.commit import Fenced, claim_epoch, commit
from relight.storage.errors import NoValidCheckpoint, SaveIncomplete
from relight.storage.input import Input
from relight.storage.layout import Incarnation, shard_path
from relight.storage.needs import Needs
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt
from relight.storage.write_shard import Source

ONE = Incarnation("1.0", 0)
LARGE = np.arange(20_000.0)


class Ranks:
    """Threads that take part in collectives, each as a rank."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._words = [""] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def gather(self, rank: int) -> Callable[[str], list[str]]:
        def gather_all(word: str) -> list[str]:
            self._words[rank] = word
            self._barrier.wait()
            found = list(self._words)
            self._barrier.wait()
            return found

        return gather_all

    def each(self, act: Callable[[int, Callable[[str], list[str]]], object]) -> Sequence[object]:
        """What it gives, or raises, on each rank."""

        def result(rank: int) -> object:
            try:
                return act(rank, self.gather(rank))
            except Exception as error:  # the outcome to be looked at
                return error

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(result, range(self.size)))


def alone(directory: Path, staging_bytes: int = 0) -> OwnCheckpoints:
    environment = read_environment(
        {"RELIGHT_CHECKPOINT_STAGING": str(staging_bytes)}, directory, None
    )
    return OwnCheckpoints(directory, environment, World(), lambda word: [word])


def no_needs() -> Needs:
    return Needs(pieces={})


def saved(directory: Path, *steps: int, ranks: int = 1) -> None:
    epoch = claim_epoch(directory, ONE)
    for step in steps:
        state = {"w": LARGE + step}
        receipts = [save_shard(directory, step, ONE, rank, ranks, state) for rank in range(ranks)]
        commit(directory, step, ONE, epoch, receipts, {})


def test_what_cannot_be_committed_is_told_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = alone(tmp_path)
    rank.restore(no_needs)
    with monkeypatch.context() as patched:

        def refuse(*_: object) -> None:
            raise SaveIncomplete(1, "a shard cannot be read")

        patched.setattr(own_checkpoints, "commit", refuse)
        assert not rank.save(1, {"w": LARGE}, Notes())
    assert "step 1 failed" in capsys.readouterr().err
    assert rank.save(2, {"w": LARGE}, Notes())
    assert [one.step for one in candidates(tmp_path) if one.condition == "valid"] == [2]


def test_who_has_lost_the_directory_ends_at_its_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is lost while a thread saves, at the one after that."""
    rank = alone(tmp_path, 64 << 20)
    rank.restore(no_needs)

    def lose(self: OwnCheckpoints, step: int) -> tuple[Receipt, ...]:
        claim_epoch(tmp_path, Incarnation("2.0", 0), "another")
        return receipts(self, step)

    receipts = OwnCheckpoints._receipts
    monkeypatch.setattr(OwnCheckpoints, "_receipts", lose)
    try:
        rank.save(1, {"w": LARGE}, Notes())
        assert not rank.saving.settle()
        with pytest.raises(Fenced, match="another"):
            rank.save(2, {"w": LARGE}, Notes())
    finally:
        rank.saving.close()


def two_ranks(directory: Path) -> list[OwnCheckpoints]:
    environment = read_environment({"RELIGHT_CHECKPOINT_STAGING": "0"}, directory, None)
    ranks = Ranks(2)
    made = [
        OwnCheckpoints(directory, environment, World(rank, 2), ranks.gather(rank))
        for rank in range(2)
    ]
    assert ranks.each(lambda rank, _: made[rank].restore(no_needs)) == [None, None]
    return made


def test_all_ranks_hear_that_the_directory_is_lost(tmp_path: Path) -> None:
    ranks = two_ranks(tmp_path)
    claim_epoch(tmp_path, Incarnation("2.0", 0), "another")
    for rank in ranks:
        with pytest.raises(Fenced, match="another"):
            rank.save(1, {"w": LARGE}, Notes())
    assert not list(tmp_path.glob("*/*/shard-*"))


def test_nobody_waits_for_a_rank_whose_save_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = two_ranks(tmp_path)
    state = {"w": LARGE}
    with monkeypatch.context() as patched:

        def fail(path: Path, source: Source, *_: object) -> None:
            raise OSError(errno.EIO, "a writer that was killed")

        patched.setattr("relight.storage.checkpointer.write_shard", fail)
        assert not second.save(1, state, Notes())
    assert not first.save(1, state, Notes())
    assert (
        "rank 0: the checkpoint of step 1 failed: rank 1 has not saved" in capsys.readouterr().err
    )
    # It is tried again, as the last one of a program is: what was said of the first try is old.
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(first.save, 1, state, Notes())
        assert second.save(1, state, Notes())
        assert again.result(60)
    assert [one.step for one in candidates(tmp_path) if one.condition == "valid"] == [1]


def test_no_rank_waits_for_one_that_has_nothing_to_restore_from(tmp_path: Path) -> None:
    saved(tmp_path, 1, ranks=2)
    os.truncate(shard_path(tmp_path, 1, ONE, 0), 1000)
    environment = read_environment({"RELIGHT_CHECKPOINT_STAGING": "0"}, tmp_path, None)
    ranks = Ranks(2)
    found = ranks.each(
        lambda rank, gather_all: OwnCheckpoints(
            tmp_path, environment, World(rank, 2), gather_all
        ).restore(no_needs)
    )
    assert [type(one) for one in found] == [NoValidCheckpoint] * 2
    assert str(found[0]) == str(found[1])


def test_what_one_rank_cannot_do_all_hear_of() -> None:
    def act(rank: int, gather_all: Callable[[str], list[str]]) -> object:
        def own() -> str:
            if rank == 1:
                raise PermissionError(errno.EACCES, "not for you", "/there")
            return "right"

        return together(gather_all, own)

    first, second = Ranks(2).each(act)
    assert isinstance(first, OtherRankFailed)
    assert "rank 1 cannot restore: [Errno 13] not for you: '/there'" in str(first)
    assert isinstance(second, PermissionError)


def test_a_disk_that_fails_once_sets_no_checkpoint_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1, 2)
    failures = [OSError(errno.EIO, "a client that was evicted")]
    fill = Input.fill

    def fill_or_fail(*given: object) -> bytes:
        if failures:
            raise failures.pop()
        return fill(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Input, "fill", fill_or_fail)
    restored = alone(tmp_path).restore(no_needs)
    assert not failures
    assert restored is not None
    assert np.array_equal(restored.state["w"], LARGE + 2)  # type: ignore[arg-type]
    assert [one.condition for one in candidates(tmp_path)] == ["valid", "valid"]
