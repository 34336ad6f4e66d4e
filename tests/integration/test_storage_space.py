"""A full disk and other refusals: a clear error, nothing left, earlier checkpoints intact."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import CheckpointDamaged, SaveFailed, load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import StateRefused
from relight.storage.layout import Incarnation, incarnation_dir
from relight.storage.manifest import Manifest
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)


def state(megabytes: float) -> dict[str, object]:
    return {"w": np.ones(int(megabytes * (1 << 20)), np.uint8)}


def save(directory: Path, step: int, megabytes: float) -> None:
    receipt = save_shard(directory, step, ONE, 0, 1, state(megabytes))
    commit(directory, step, ONE, 1, [receipt], {})


def files(directory: Path, step: int) -> list[str]:
    return [path.name for path in incarnation_dir(directory, step, ONE).iterdir()]


@pytest.mark.parametrize("megabytes", [20, 4.99])
def test_a_full_disk_is_a_clean_refusal(small_disk: Path, megabytes: float) -> None:
    claim_epoch(small_disk, ONE)
    save(small_disk, 1, 3)
    with pytest.raises(SaveFailed, match="No space left") as caught:
        save(small_disk, 2, megabytes)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.transient
    assert files(small_disk, 2) == []
    manifest = newest_valid(small_disk)
    assert manifest is not None
    assert manifest.step == 1
    assert verify(small_disk).sound
    save(small_disk, 2, 2)
    assert load_shard(small_disk, checked(small_disk), 0).keys() == {"w"}


def test_a_disk_that_is_full_at_any_point_costs_no_checkpoint(small_disk: Path) -> None:
    """It fails before the first byte, at the receipt, at the manifest, or not at all."""
    claim_epoch(small_disk, ONE)
    save(small_disk, 1, 0.25)
    ballast, newest = small_disk / "more", 1
    outcomes: set[bool] = set()
    failures: set[int | None] = set()
    for step, room_kib in enumerate([*range(0, 40, 4), *range(252, 316, 4)], 2):
        found = os.statvfs(small_disk)
        with ballast.open("wb") as file:
            size_bytes = found.f_bavail * found.f_frsize - room_kib * 1024
            with suppress(OSError):  # what ext4 wants for itself may be missing then
                os.posix_fallocate(file.fileno(), 0, max(1, size_bytes))
        try:
            save(small_disk, step, 0.25)
        except (SaveFailed, OSError) as error:
            failures.add(error.errno)
        manifest = checked(small_disk)
        assert manifest.step in (newest, step)
        assert np.array_equal(load_shard(small_disk, manifest, 0)["w"], state(0.25)["w"])  # type: ignore[arg-type]
        outcomes.add(manifest.step == step)
        newest = manifest.step
        ballast.unlink()
    assert (outcomes, failures) == ({False, True}, {errno.ENOSPC})
    assert verify(small_disk).sound


def test_a_file_system_that_cannot_be_written_to_is_named_and_can_be_read(small_disk: Path) -> None:
    claim_epoch(small_disk, ONE)
    save(small_disk, 1, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(
        SaveFailed, match=r"Read-only file system\. Earlier checkpoints are"
    ) as caught:
        save(small_disk, 2, 1)
    assert not caught.value.transient
    with pytest.raises(OSError, match="Read-only"):
        claim_epoch(small_disk, Incarnation("2.0", 0))
    assert load_shard(small_disk, checked(small_disk), 0).keys() == {"w"}
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    save(small_disk, 2, 1)
    assert checked(small_disk).step == 2


def test_a_used_up_quota_is_a_clean_refusal(under_quota: Path) -> None:
    claim_epoch(under_quota, ONE)
    save(under_quota, 1, 3)
    with pytest.raises(SaveFailed, match="quota") as caught:
        save(under_quota, 2, 20)
    assert caught.value.errno == errno.EDQUOT
    assert caught.value.transient
    assert files(under_quota, 2) == []
    assert checked(under_quota).step == 1
    assert verify(under_quota).sound
    save(under_quota, 2, 2)
    assert load_shard(under_quota, checked(under_quota), 0).keys() == {"w"}


def checked(directory: Path) -> Manifest:
    manifest = newest_valid(directory)
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("call", ["pwrite", "fsync", "link"])
def test_an_io_error_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    claim_epoch(tmp_path, ONE)
    save(tmp_path, 1, 1)

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(OSError if call == "link" else SaveFailed):
            save(tmp_path, 2, 1)
    assert checked(tmp_path).step == 1
    save(tmp_path, 2, 1)
    assert checked(tmp_path).step == 2
    assert verify(tmp_path).sound


def test_a_late_write_error_removes_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real = os.pwrite

    def fails_at_the_third(fd: int, data: memoryview, at: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", fails_at_the_third)
    with pytest.raises(SaveFailed, match="quota") as caught:
        save_shard(tmp_path, 1, ONE, 0, 1, state(40))
    assert caught.value.transient
    assert files(tmp_path, 1) == []


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:70_001], at))
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: read(fd, [parts[0][:70_001]], at))
    claim_epoch(tmp_path, ONE)
    save(tmp_path, 1, 3)
    loaded = load_shard(tmp_path, checked(tmp_path), 0)
    assert np.array_equal(np.asarray(loaded["w"]), np.asarray(state(3)["w"]))


def test_a_file_system_without_fallocate_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFallocate:
        def fallocate(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: NoFallocate())
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EOPNOTSUPP)
    claim_epoch(tmp_path, ONE)
    save(tmp_path, 1, 1)
    assert verify(tmp_path).sound


def test_a_directory_that_cannot_be_written_is_a_lasting_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SaveFailed) as caught:
        save_shard(tmp_path / "file" / "checkpoints", 1, ONE, 0, 1, {})
    assert not caught.value.transient


def test_a_refused_state_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StateRefused, match="model/bad"):
        save_shard(tmp_path / "checkpoints", 1, ONE, 0, 1, {"model": {"bad": object()}})
    assert not (tmp_path / "checkpoints").exists()


def test_a_read_error_is_damage_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_epoch(tmp_path, ONE)
    save(tmp_path, 1, 1)
    manifest = checked(tmp_path)

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(CheckpointDamaged, match="cannot be read: Input/output error"):
        load_shard(tmp_path, manifest, 0)
    assert not verify(tmp_path).sound
