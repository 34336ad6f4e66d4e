"""Whatever happens to the files: never a wrong value, always a name for the damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relight.storage.checkpointer import CheckpointDamaged, load_shard, save_shard
from relight.storage.choose import NoValidCheckpoint, candidates, newest_valid, set_aside
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.errors import WorldChanged
from relight.storage.layout import Incarnation, manifest_path, set_aside_dir, shard_path
from relight.storage.manifest import Manifest
from relight.storage.prune import prune
from relight.storage.retention import Keep
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
TWO = Incarnation("2.0", 0)
State = dict[str, object]


def state(step: int, rank: int) -> State:
    values = np.random.default_rng([step, rank])
    return {
        "big": values.integers(0, 256, 9 << 20, np.uint8),
        "medium": values.normal(size=10_000),
        "small": values.normal(size=(3, 4)),
        "step": step,
    }


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)  # type: ignore[arg-type]


def save(directory: Path, step: int, incarnation: Incarnation = ONE, epoch: int = 1) -> Manifest:
    receipts = [save_shard(directory, step, incarnation, r, 2, state(step, r)) for r in range(2)]
    return commit(directory, step, incarnation, epoch, receipts, {})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("saved")
    claim_epoch(directory, ONE)
    save(directory, 10)
    save(directory, 20)
    return directory


@pytest.fixture
def directory(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


def restore(directory: Path) -> tuple[int, list[State]]:
    """What a restoring world does: the newest that loads, with the bad ones set aside."""
    while manifest := newest_valid(directory):
        try:
            return manifest.step, [load_shard(directory, manifest, rank) for rank in range(2)]
        except CheckpointDamaged as error:
            set_aside(directory, manifest.step, str(error))
    raise AssertionError("nothing to restore")


def test_what_was_saved_is_restored(directory: Path) -> None:
    step, states = restore(directory)
    assert step == 20
    assert all(same(states[rank], state(20, rank)) for rank in range(2))
    assert verify(directory).sound


def flipped_at(position: int, bit: int) -> Callable[[bytearray], None]:
    def flip(data: bytearray) -> None:
        data[position] ^= 1 << bit

    return flip


def zero_page(data: bytearray) -> None:
    data[5 << 20 : (5 << 20) + 4096] = bytes(4096)


def cut_one(data: bytearray) -> None:
    del data[-1:]


def cut_half(data: bytearray) -> None:
    del data[len(data) // 2 :]


def grow(data: bytearray) -> None:
    data += b"\0"


def empty(data: bytearray) -> None:
    data.clear()


def test_every_flipped_bit_is_found_and_no_wrong_value_is_read(directory: Path) -> None:
    manifest = newest_valid(directory)
    assert manifest is not None
    path = shard_path(directory, 20, ONE, 1)
    whole = path.read_bytes()
    receipt = manifest.receipts[1]
    dice = random.Random(3)
    places = [dice.randrange(len(whole)) for _ in range(10)]
    places += [dice.randrange(2048) for _ in range(10)]  # HDF5's own
    for at, size in (
        (receipt.index_at, receipt.index_bytes),
        (receipt.digests_at, receipt.digests_bytes),
    ):
        places += [at, at + size - 1, *(at + dice.randrange(size) for _ in range(8))]
    for position in places:
        changed = bytearray(whole)
        flipped_at(position, dice.randrange(8))(changed)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(changed[position : position + 1])
        findings = verify(directory, 20).findings
        assert [finding.file for finding in findings] == [receipt.file], position
        if findings[0].array == "header":
            assert same(load_shard(directory, manifest, 1), state(20, 1))
        else:
            with pytest.raises(CheckpointDamaged) as caught:
                load_shard(directory, manifest, 1)
            assert caught.value.file == str(path)
            assert caught.value.array == findings[0].array
            assert caught.value.block == findings[0].block
        with path.open("r+b") as file:
            file.seek(position)
            file.write(whole[position : position + 1])
    assert verify(directory).sound


@pytest.mark.parametrize("damage", [zero_page, cut_one, cut_half, grow, empty])
def test_a_damaged_shard_makes_the_one_before_it_the_choice(
    directory: Path, damage: Callable[[bytearray], None]
) -> None:
    path = shard_path(directory, 20, ONE, 0)
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    report = verify(directory)
    assert report.steps == (20, 10)
    assert {finding.step for finding in report.findings} == {20}
    step, states = restore(directory)
    assert step == 10
    assert all(same(states[rank], state(10, rank)) for rank in range(2))


def test_damage_is_named_by_file_array_and_block(directory: Path) -> None:
    manifest = newest_valid(directory)
    assert manifest is not None
    path = shard_path(directory, 20, ONE, 0)
    data = bytearray(path.read_bytes())
    start = bytes(data).index(np.asarray(state(20, 0)["big"]).tobytes()[:4096])
    data[start + (8 << 20) + 5] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointDamaged, match=r"shard-00000.h5 is damaged at big, block 1"):
        load_shard(directory, manifest, 0)
    (finding,) = verify(directory, 20).findings
    assert (finding.file, finding.array, finding.block) == ("1.0.g0/shard-00000.h5", "big", 1)


def test_a_missing_shard_makes_the_one_before_it_the_choice(directory: Path) -> None:
    shard_path(directory, 20, ONE, 1).unlink()
    found = candidates(directory)
    assert [(one.step, one.condition) for one in found] == [(20, "damaged"), (10, "valid")]
    assert "shard-00001.h5" in found[0].reason
    assert restore(directory)[0] == 10


def test_a_shard_of_another_step_is_refused(directory: Path) -> None:
    shutil.copy(shard_path(directory, 10, ONE, 0), shard_path(directory, 20, ONE, 0))
    manifest = newest_valid(directory)
    assert manifest is not None
    with pytest.raises(CheckpointDamaged, match="another save"):
        load_shard(directory, manifest, 0)
    assert restore(directory)[0] == 10


@pytest.mark.parametrize("content", [b"", b"\0" * 500, b"{}", b'{"body":{},"digest":""}\n'])
def test_a_damaged_manifest_is_never_chosen(directory: Path, content: bytes) -> None:
    manifest_path(directory, 20).write_bytes(content)
    chosen = newest_valid(directory)
    assert chosen is not None
    assert chosen.step == 10
    assert verify(directory, 20).findings[0].array == "manifest"


def test_a_manifest_of_another_step_is_never_chosen(directory: Path) -> None:
    shutil.copy(manifest_path(directory, 10), manifest_path(directory, 20))
    assert restore(directory)[0] == 10


def test_a_damaged_manifest_is_replaced_when_all_receipts_are_there(directory: Path) -> None:
    manifest_path(directory, 20).write_bytes(b"garbage")
    epoch = claim_epoch(directory, TWO)
    assert [manifest.step for manifest in commit_complete(directory, epoch)] == [20]
    assert restore(directory)[0] == 20
    (kept,) = set_aside_dir(directory).glob("*/MANIFEST.json")
    assert kept.read_bytes() == b"garbage"


def test_a_checkpoint_that_is_being_deleted_is_not_committed_again(directory: Path) -> None:
    manifest_path(directory, 10).unlink()  # as `prune` begins, in a thread of the run that ended
    epoch = claim_epoch(directory, TWO)
    assert commit_complete(directory, epoch) == []
    assert prune(directory, Keep(last=3), epoch, TWO).leftovers
    assert [one.step for one in candidates(directory)] == [20]


def test_foreign_files_are_ignored(directory: Path) -> None:
    (directory / "latest").write_text("999")
    (directory / "000000000099").write_text("a file, not a folder")
    (directory / "000000000030").mkdir()
    (directory / "20").mkdir()
    (directory / "000000000020" / ".nfs0001").touch()
    (directory / "000000000020" / "1.0.g0.tmp").mkdir()
    assert restore(directory)[0] == 20
    assert commit_complete(directory, 1) == []


def test_committed_checkpoints_of_which_none_is_valid_are_an_error(directory: Path) -> None:
    for step in (10, 20):
        shard_path(directory, step, ONE, 0).unlink()
    with pytest.raises(NoValidCheckpoint, match=r"step 20: .*step 10: "):
        newest_valid(directory)
    for step in (10, 20):
        set_aside(directory, step, "lost a shard")
    with pytest.raises(NoValidCheckpoint, match="step 10, set aside: lost a shard"):
        newest_valid(directory)


def test_a_directory_without_commits_is_a_start_from_scratch(tmp_path: Path) -> None:
    assert newest_valid(tmp_path / "missing") is None
    assert newest_valid(tmp_path) is None
    claim_epoch(tmp_path, ONE)
    save_shard(tmp_path, 5, ONE, 0, 2, {})
    assert newest_valid(tmp_path) is None


def test_a_step_that_was_set_aside_can_be_saved_again(directory: Path) -> None:
    set_aside(directory, 20, "block 3 of w")
    set_aside(directory, 20, "somebody else saw it too")
    assert restore(directory)[0] == 10
    epoch = claim_epoch(directory, TWO)
    assert commit_complete(directory, epoch) == []
    save(directory, 20, TWO, epoch)
    assert restore(directory)[0] == 20
    set_aside(directory, 20, "again")
    assert len(list(set_aside_dir(directory).glob("*/checkpoint"))) == 2


def test_another_world_is_refused_clearly(directory: Path) -> None:
    manifest = newest_valid(directory)
    assert manifest is not None
    with pytest.raises(WorldChanged, match="saved by 2 ranks"):
        load_shard(directory, manifest, 2)
    with pytest.raises(WorldChanged, match="by 3 ranks"):
        load_shard(directory, manifest, 0, world_size=3)


def test_a_sealed_manifest_that_lies_is_damage(directory: Path) -> None:
    manifest = newest_valid(directory)
    assert manifest is not None
    first, second = manifest.receipts
    for lie in (
        replace(first, index_bytes=1 << 40),
        replace(first, digests_bytes=1 << 62),
        replace(first, digests_at=1 << 63),
        replace(first, index_at=-1),
        replace(second, rank=0),
    ):
        with pytest.raises(CheckpointDamaged, match=r"places|of another"):
            load_shard(directory, replace(manifest, receipts=(lie, second)), 0)
