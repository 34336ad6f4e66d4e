"""What a power cut leaves: of files what was fsynced of them, of folders the names that were.

No disk has to forget that much. But one that may must not cost a checkpoint, at any moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation
from relight.storage.prune import prune
from relight.storage.retention import Keep
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
FROZEN = np.arange(10_000.0)  # is left in the shard that has it, under one more name


class Forgetful:
    """A disk of which only what was fsynced is there after a cut; looked at after each fsync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
        self._bytes: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # with whether it is a folder
        self._fsync, self._then = os.fsync, then
        monkeypatch.setattr(os, "fsync", self._synced)

    def _synced(self, fd: int) -> None:
        self._fsync(fd)
        found, path = os.fstat(fd), Path(f"/proc/self/fd/{fd}")
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {
                one.name: (one.stat().st_ino, one.is_dir()) for one in path.iterdir()
            }
        else:
            self._bytes[found.st_ino] = path.read_bytes()
        self._then()

    def after_a_cut(self, folder: Path, into: Path) -> Path:
        self._bring_back(folder.stat().st_ino, into)
        return into / "checkpoints"

    def _bring_back(self, inode: int, path: Path) -> None:
        path.mkdir()
        for name, (one, is_folder) in self._names.get(inode, {}).items():
            if is_folder:
                self._bring_back(one, path / name)
            else:
                (path / name).write_bytes(self._bytes.get(one, b""))


def save(directory: Path, step: int) -> None:
    state = {"frozen": FROZEN, "w": np.full(20_000, step), "small": np.full(3, step)}
    receipts = [save_shard(directory, step, ONE, rank, 2, state, reuse=5) for rank in range(2)]
    commit(directory, step, ONE, 1, receipts, {})


def newest_step(directory: Path) -> int:
    """Of the newest checkpoint, which is whole; 0 without any."""
    manifest = newest_valid(directory)
    if manifest is None:
        return 0
    assert verify(directory, manifest.step).sound
    assert np.array_equal(load_shard(directory, manifest, 1)["frozen"], FROZEN)  # type: ignore[arg-type]
    return manifest.step


def test_what_was_committed_is_there_after_a_power_cut_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, images = tmp_path / "disk", tmp_path / "images"
    disk.mkdir()
    images.mkdir()
    seen = [0]

    def cut() -> None:
        seen.append(newest_step(forgetful.after_a_cut(disk, images / str(len(seen)))))

    forgetful = Forgetful(monkeypatch, cut)
    directory = disk / "checkpoints"
    claim_epoch(directory, ONE)
    for step in (1, 2, 3):
        save(directory, step)
        assert seen[-1] == step, "it was called committed"
        prune(directory, Keep(last=1), 1, ONE)
    assert seen == sorted(seen), "a checkpoint was there and is gone"
