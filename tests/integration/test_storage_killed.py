"""A save that dies at any call to the operating system harms nothing and can be repeated.

The child is a fork of this process, in which every call that the save makes into `os` and h5py is
counted; before and after the n-th it kills itself. HDF5's own calls lie between those of h5py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.layout import Incarnation
from relight.storage.prune import prune
from relight.storage.retention import Keep
from relight.storage.verify import verify

OLD, DYING, NEXT = Incarnation("1.0", 0), Incarnation("1.0", 1), Incarnation("2.0", 0)
CALLS = "open close write pwrite fsync link rename replace unlink mkdir rmdir fstat"


def state(step: int) -> dict[str, object]:
    return {"w": np.full(20_000, step, "f8"), "small": np.arange(step), "step": step}


def save(directory: Path, step: int, incarnation: Incarnation, epoch: int) -> None:
    receipts = [save_shard(directory, step, incarnation, rank, 2, state(step)) for rank in range(2)]
    commit(directory, step, incarnation, epoch, receipts, {})


def save_and_prune(directory: Path) -> None:
    save(directory, 3, DYING, 1)
    prune(directory, Keep(last=1), 1, DYING)


def dies_at(call: int, directory: Path) -> bool:
    """Runs the save in a fork that kills itself at a call; False when it came to its end."""
    child = os.fork()
    if child == 0:
        result = 1
        try:
            count_calls(call)
            save_and_prune(directory)
            result = 0
        finally:
            os._exit(result)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the save itself failed"
    return status == signal.SIGKILL


def count_calls(last: int) -> None:
    """Replaces what a save calls by something that ends this process at the last call."""
    made = 0

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal made
            made += 1
            if made == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for name in CALLS.split():
        setattr(os, name, counted(getattr(os, name)))
    for owner, name in ((h5py.h5d, "create"), (h5py.File, "close"), (h5py.File, "__init__")):
        setattr(owner, name, counted(getattr(owner, name)))


def test_a_save_killed_at_any_call_can_be_repeated(tmp_path: Path) -> None:
    call = 0
    died = True
    while died:
        call += 1
        directory = tmp_path / str(call)
        epoch = claim_epoch(directory, OLD)
        save(directory, 1, OLD, epoch)
        save(directory, 2, OLD, epoch)
        died = dies_at(call, directory)
        left = newest_valid(directory)
        assert left is not None
        assert left.step in (2, 3), call
        assert verify(directory).sound, call
        assert_restorable(directory)
        epoch = claim_epoch(directory, NEXT)
        commit_complete(directory, epoch)
        save(directory, 3, NEXT, epoch)
        prune(directory, Keep(last=1), epoch, NEXT)
        assert assert_restorable(directory) == 3, call
        assert verify(directory).steps == (3,), call
        folders = {path.name for path in (directory / "000000000003").glob("*.g*")}
        assert folders <= {committer(directory), NEXT.folder}, call
    assert call > 60, "the harness saw too few calls to mean anything"


def test_the_same_incarnation_repeats_a_killed_save(tmp_path: Path) -> None:
    call = 0
    died = True
    while died:
        call += 1
        directory = tmp_path / str(call)
        epoch = claim_epoch(directory, OLD)
        save(directory, 2, OLD, epoch)
        died = dies_at(call, directory)
        save(directory, 3, DYING, epoch)
        assert assert_restorable(directory) == 3, call
        assert verify(directory).sound, call


def committer(directory: Path) -> str:
    manifest = newest_valid(directory)
    assert manifest is not None
    return manifest.incarnation.folder


def assert_restorable(directory: Path) -> int:
    manifest = newest_valid(directory)
    assert manifest is not None
    for rank in range(2):
        loaded = load_shard(directory, manifest, rank)
        assert loaded["step"] == manifest.step
        assert np.array_equal(np.asarray(loaded["w"]), np.asarray(state(manifest.step)["w"]))
    return manifest.step


def test_the_harness_kills(tmp_path: Path) -> None:
    claim_epoch(tmp_path, OLD)
    assert dies_at(1, tmp_path)
    assert not dies_at(10_000, tmp_path)
    assert assert_restorable(tmp_path) == 3
    claim_epoch(tmp_path, NEXT)
    with pytest.raises(AssertionError, match="the save itself failed"):
        dies_at(10_000, tmp_path)
