"""A file system that answers with errors, at any call, or takes its time: by a real one, over FUSE.

HDF5's own writes meet the errors too, and the kernel may tell of a failed write only at fsync.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stage.faulty_disk import Disk, faulty_disk

from relight.resilience.worker.saving import InBackground, Target
from relight.resilience.worker.world import World
from relight.storage.checkpointer import CheckpointDamaged, SaveFailed, load_shard, save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.layout import Incarnation
from relight.storage.manifest import Manifest
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
STATE = {"w": np.arange(400_000), "small": np.ones(3), "step": 7}


@pytest.fixture(params=["early", "late"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    with faulty_disk(tmp_path, late=request.param == "late") as found:
        if found is None:
            pytest.skip("/dev/fuse does not work here")
        yield found


def save(directory: Path, step: int) -> Manifest:
    receipt = save_shard(directory, step, ONE, 0, 1, STATE)
    return commit(directory, step, ONE, 1, [receipt], {})


def newest(directory: Path) -> Manifest:
    manifest = newest_valid(directory)
    assert manifest is not None
    return manifest


def is_whole(directory: Path, manifest: Manifest) -> bool:
    found = load_shard(directory, manifest, 0)
    return bool(np.array_equal(found["w"], STATE["w"]))  # type: ignore[arg-type]


FAULTS = [
    *((call, errno.EIO, 0) for call in ("MKDIR", "CREATE", "FSYNC", "FSYNCDIR", "LINK", "STATFS")),
    *(("WRITE", errno.EIO, after) for after in (0, 1, 2, 5, 20)),
    *(("WRITE", number, 3) for number in (errno.ENOSPC, errno.EDQUOT)),
    *(("FSYNC", errno.EIO, after) for after in (1, 2)),
    *(("CREATE", number, after) for number in (errno.EROFS, errno.EDQUOT) for after in (0, 1)),
    ("RENAME2", errno.EIO, 0),
    ("OPEN", errno.EIO, 0),
    ("FALLOCATE", errno.ENOSPC, 0),
]


def test_no_error_at_any_call_costs_the_checkpoint_before_or_passes_unseen(disk: Disk) -> None:
    directory = disk.root / "checkpoints"
    claim_epoch(directory, ONE)
    save(directory, 1)
    before = 1
    failures = []
    for step, (call, number, after) in enumerate(FAULTS, 2):
        disk.fail(call, number, after)
        try:
            manifest = save(directory, step)
        except (SaveFailed, OSError) as error:
            failures.append((call, after, number, error.errno))
            disk.mend()
            # An fsync of the folder that fails after the link leaves a whole checkpoint, no less.
            assert newest(directory).step in (before, step)
        else:
            disk.mend()
            assert manifest.step == step
        assert is_whole(directory, newest(directory)), (call, number, after)
        before = save(directory, step).step
    assert verify(directory).sound
    assert newest(directory).step == before
    failed = {(call, after) for call, after, _, _ in failures}
    assert failed >= {(call, 0) for call in ("WRITE", "FSYNC", "CREATE", "LINK", "MKDIR")}
    # A kernel that caches may tell of any failed write as EIO.
    assert [one for one in failures if one[3] not in (one[2], errno.EIO)] == []


def test_what_was_complete_is_committed_when_the_disk_is_well_again(disk: Disk) -> None:
    directory = disk.root / "checkpoints"
    epoch = claim_epoch(directory, ONE)
    save(directory, 1)
    receipt = save_shard(directory, 2, ONE, 0, 1, STATE)
    disk.fail("LINK", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        commit(directory, 2, ONE, epoch, [receipt], {})
    assert newest(directory).step == 1
    disk.mend()
    assert [manifest.step for manifest in commit_complete(directory, epoch)] == [2]
    assert is_whole(directory, newest(directory))


def test_an_error_while_reading_is_named_and_no_value_is_loaded(disk: Disk) -> None:
    directory = disk.root / "checkpoints"
    claim_epoch(directory, ONE)
    manifest = save(directory, 1)
    disk.drop_caches()
    disk.fail("READ", errno.EIO, after=1)
    with pytest.raises(CheckpointDamaged, match="cannot be read: Input/output error"):
        load_shard(directory, manifest, 0)
    disk.mend()
    assert is_whole(directory, manifest)


def test_steps_go_on_while_the_disk_stalls(disk: Disk, tmp_path: Path) -> None:
    """Also when the stall ends in an error: it is reported at the next save, not before."""
    directory = disk.root / "checkpoints"
    epoch = claim_epoch(directory, ONE)
    told: list[str] = []
    receipts: list[Receipt] = []
    saving = InBackground(1 << 26, told.append)

    def conclude(write: object) -> bool:
        assert callable(write)
        try:
            receipts.append(write())
        except SaveFailed as error:
            told.append(str(error))
            return False
        return True

    try:
        assert saving.save(Target(directory, 1, ONE, World(), Notes()), STATE, conclude)
        assert saving.settle()
        disk.stall("CREATE", 300.0)
        assert saving.save(Target(directory, 2, ONE, World(), Notes()), STATE, conclude)
        assert [receipt.step for receipt in receipts] == [1]
        disk.mend()
        assert saving.settle()
        disk.fail("FSYNC", errno.EIO)
        assert saving.save(Target(directory, 3, ONE, World(), Notes()), STATE, conclude)
        assert not saving.settle()
        disk.mend()
    finally:
        saving.close()
    assert [receipt.step for receipt in receipts] == [1, 2]
    assert "Input/output error" in told[0]
    for receipt in receipts:
        commit(directory, receipt.step, ONE, epoch, [receipt], {})
    assert is_whole(directory, newest(directory))
