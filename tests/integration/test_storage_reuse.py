"""Arrays that do not change are not written again, and every checkpoint still has all it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from relight.storage.checkpointer import CheckpointDamaged, load_shard, save_shard
from relight.storage.choose import newest_valid, set_aside
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, shard_path, step_dir
from relight.storage.manifest import Manifest
from relight.storage.prune import delete
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
FROZEN = np.random.default_rng(1).integers(0, 256, 9 << 20, np.uint8)
State = dict[str, object]


def state(step: int) -> State:
    values = np.random.default_rng(step)
    last_changes = FROZEN.copy()
    last_changes[-1] = step % 256
    return {
        "frozen": FROZEN,
        "view": np.ones((300, 400))[::2].T,
        "grown": values.normal(size=10_000 + step),
        "last_changes": last_changes,
        "small": np.arange(4) + step,
    }


def save(directory: Path, step: int, reuse: int = 5) -> Manifest:
    receipt = save_shard(directory, step, ONE, 0, 1, state(step), reuse=reuse)
    return commit(directory, step, ONE, 1, [receipt], {})


def restored(directory: Path) -> int:
    """The step that a run would go on from; its values are the right ones."""
    while manifest := newest_valid(directory):
        try:
            loaded = load_shard(directory, manifest, 0)
        except CheckpointDamaged as error:
            set_aside(directory, manifest.step, str(error))
            continue
        for key, value in state(manifest.step).items():
            np.testing.assert_array_equal(loaded[key], value)
        return manifest.step
    raise AssertionError("nothing to restore")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    claim_epoch(tmp_path, ONE)
    return tmp_path


def test_what_has_changed_is_written_and_nothing_else(directory: Path) -> None:
    first, second, third = (save(directory, step).receipts[0] for step in (10, 20, 30))
    assert first.bases == {}
    # Neither the frozen array nor the view; the one of which the last byte changed is whole.
    assert first.size_bytes - second.size_bytes > FROZEN.nbytes + 150 * 400 * 8 - 8192
    assert second.size_bytes > FROZEN.nbytes
    # Always the file that has the bytes, never one that refers to it.
    name = "shard-00000.from-000000000010.1.0.g0.h5"
    assert third.bases == second.bases == {name: first.size_bytes}
    delete(directory, [10, 20])
    assert restored(directory) == 30
    assert verify(directory, restore=True).sound


def test_a_checkpoint_that_is_copied_alone_is_whole(directory: Path, tmp_path: Path) -> None:
    for step in (10, 20):
        save(directory, step)
    alone = tmp_path / "alone"
    shutil.copytree(step_dir(directory, 20), step_dir(alone, 20))
    assert restored(alone) == 20


def test_other_tools_read_it_as_any_hdf5_file(directory: Path) -> None:
    save(directory, 10)
    save(directory, 20)
    path = shard_path(directory, 20, ONE, 0)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["t/000000"][:], FROZEN)
        np.testing.assert_array_equal(
            file["t/000001"][:].view("f8").reshape(400, 150), state(20)["view"]
        )
    dumped = subprocess.run(
        ["h5dump", "-y", "-w", "0", "-d", "/t/000000", "-s", "0", "-c", "4", path],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    ).stdout
    assert ", ".join(map(str, FROZEN[:4])) in dumped


def test_after_so_many_saves_it_is_written_again(directory: Path) -> None:
    bases = [bool(save(directory, step, reuse=2).receipts[0].bases) for step in range(1, 8)]
    assert bases == [False, True, True, False, True, True, False]
    assert not save(directory, 8, reuse=0).receipts[0].bases


def test_a_damaged_file_is_named_and_all_that_need_it_are_passed_over(directory: Path) -> None:
    for step in (10, 20, 30, 40):
        save(directory, step, reuse=1)  # 10 and 30 have the bytes
    with shard_path(directory, 30, ONE, 0).open("r+b") as file:
        place = h5py.File(file, "r")["t/000000"].id.get_offset()
        file.seek(place + 5)
        byte = file.read(1)
        file.seek(place + 5)
        file.write(bytes([byte[0] ^ 1]))
    found = {one.step: one for one in verify(directory).findings}
    assert found.keys() == {30, 40}
    assert found[40].array == "frozen"
    assert found[40].block == 0
    assert "shard-00000.from-000000000030.1.0.g0.h5" in found[40].reason
    assert restored(directory) == 20


def test_a_lost_file_makes_the_checkpoint_invalid(directory: Path) -> None:
    save(directory, 10)
    (base,) = save(directory, 20).receipts[0].bases
    (step_dir(directory, 20) / ONE.folder / base).unlink()
    assert restored(directory) == 10


def test_one_that_is_set_aside_takes_nothing_with_it(directory: Path) -> None:
    for step in (10, 20):
        save(directory, step)
    set_aside(directory, 10, "for some other array")
    assert restored(directory) == 20
    assert verify(directory).sound


def test_where_links_are_refused_all_is_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(directory, 10)
    with monkeypatch.context() as patched:
        patched.setattr("relight.storage.reuse.os", NoLinks())
        receipt = save_shard(directory, 20, ONE, 0, 1, state(20), reuse=5)
    assert receipt.bases == {}
    commit(directory, 20, ONE, 1, [receipt], {})
    assert restored(directory) == 20


class NoLinks:
    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(1, os.strerror(1))
