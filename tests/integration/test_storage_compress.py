"""Shards that are compressed on their way from a tier: the same values for all, fewer bytes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import h5py
import hdf5plugin
import numpy as np
import pytest

from relight.storage import archive
from relight.storage.boxes import Box, Part
from relight.storage.checkpointer import load_shard, load_state, save_shard
from relight.storage.choose import NoValidCheckpoint, newest_valid, set_aside
from relight.storage.chunks import Chunk
from relight.storage.commit import claim_epoch, commit
from relight.storage.compare import Source, compare
from relight.storage.drain import drain
from relight.storage.errors import CheckpointDamaged, CodecMissing
from relight.storage.export import export
from relight.storage.fetch import fetch
from relight.storage.layout import Incarnation, incarnation_dir, shard_path
from relight.storage.manifest import Manifest
from relight.storage.objects import connect
from relight.storage.prune import delete
from relight.storage.read_shard import Shard
from relight.storage.shards import Shards
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
NOISE = np.random.default_rng(1).integers(0, 256, 3 << 20, np.uint8)
State = dict[str, object]


def state(step: int) -> State:
    """What gets shorter: two blocks, one of which is noise; small ones; a part; bf16. What not."""
    dice = np.random.default_rng(step)
    half = np.concatenate([NOISE, NOISE, NOISE]).view("f4")
    return {
        "two_blocks": np.concatenate([np.zeros(2 << 20, "f4"), half[: 1 << 20], half[:3]]),
        "weights": dice.normal(size=(300, 1001)).astype("f4"),
        "bf16": (dice.normal(size=200_000).astype("f4").view("u4") >> 16).astype("u2"),
        "part": Part(dice.normal(size=(200, 100)), (200, 100), (0, 0)),
        "noise": NOISE,
        "small": np.arange(9) + step,
    }


def values(one: State) -> dict[str, bytes]:
    arrays = ((key, it.array if isinstance(it, Part) else it) for key, it in one.items())
    return {key: np.asarray(array).tobytes() for key, array in arrays}


class Run:
    """One rank with a tier, and the directory that all nodes see."""

    def __init__(self, place: Path) -> None:
        self.tier, self.directory = place / "tier", place / "checkpoints"
        for folder in (self.tier, self.directory):
            folder.mkdir()
        self.epoch = claim_epoch(self.directory, ONE)

    def commit(self, step: int, *, compress: bool = True) -> Manifest:
        receipt = save_shard(self.tier, step, ONE, 0, 1, state(step))
        receipt = drain(self.tier, self.directory, receipt, compress=compress)
        return commit(self.directory, step, ONE, self.epoch, [receipt], {})

    def shard(self, step: int) -> Path:
        return shard_path(self.directory, step, ONE, 0)

    def restored(self) -> int:
        """The step that a run would go on from; its values are the right ones."""
        while manifest := newest_valid(self.directory):
            try:
                loaded = load_shard(self.directory, manifest, 0)
            except CheckpointDamaged as error:
                set_aside(self.directory, manifest.step, str(error))
                continue
            assert values(loaded) == values(state(manifest.step))
            return manifest.step
        raise AssertionError("nothing to restore")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def chunks(manifest: Manifest, run: Run) -> dict[str, tuple[Chunk, ...]]:
    with Shard(run.shard(manifest.step), manifest.receipts[0]) as shard:
        runs = shard.index.runs()
        return {shard.name(one): one.chunked.chunks for one in runs if one.chunked is not None}


def put(path: Path, place: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([byte]))


def test_arrays_are_compressed_where_that_saves_something(run: Run) -> None:
    manifest = run.commit(1)
    found = chunks(manifest, run)
    assert found.keys() == {"two_blocks", "weights", "bf16", "part"}
    zeros, noise = found["two_blocks"]
    assert zeros.size_bytes < 1000
    assert noise.size_bytes < 6 << 20, "the end of the last block is zeros"
    (receipt,) = manifest.receipts
    assert receipt.size_bytes < receipt.payload_bytes - (8 << 20)
    assert run.restored() == 1
    assert verify(run.directory, restore=True).sound


def test_a_block_of_noise_stays_as_it_is(run: Run) -> None:
    mixed = np.concatenate([np.zeros(16 << 20, np.uint8), NOISE, NOISE, NOISE])
    receipt = save_shard(run.tier, 1, ONE, 0, 1, {"mixed": mixed, "noise": NOISE})
    receipt = drain(run.tier, run.directory, receipt, compress=True)
    manifest = commit(run.directory, 1, ONE, run.epoch, [receipt], {})
    (found,) = chunks(manifest, run).values()
    assert [chunk.size_bytes == 8 << 20 for chunk in found] == [False, False, True, False]
    loaded = load_shard(run.directory, manifest, 0)
    assert np.array_equal(np.asarray(loaded["mixed"]), mixed)
    assert verify(run.directory).sound


def test_what_does_not_get_shorter_is_copied_as_it_is(run: Run) -> None:
    receipt = save_shard(run.tier, 1, ONE, 0, 1, {"noise": NOISE, "small": np.arange(9)})
    copied = drain(run.tier, run.directory, receipt, compress=True)
    assert (copied.digest, copied.copied_from) == (receipt.digest, None)
    assert run.shard(1).read_bytes() == shard_path(run.tier, 1, ONE, 0).read_bytes()


def test_every_flipped_bit_is_found_and_named(run: Run) -> None:
    run.commit(1)
    manifest = run.commit(2)
    whole, dice = run.shard(2).read_bytes(), random.Random(3)
    for name, found in chunks(manifest, run).items():
        for number, chunk in enumerate(found):
            first, last = chunk.at, chunk.at + chunk.size_bytes - 1
            for place in (first, dice.randint(first, last), last):
                put(run.shard(2), place, whole[place] ^ 1 << dice.randrange(8))
                with Shard(run.shard(2), manifest.receipts[0]) as shard:
                    (damage,) = shard.damages(lambda _: None)
                assert (damage.array, damage.block) == (name, number)
                put(run.shard(2), place, whole[place])
    put(run.shard(2), place, whole[place] ^ 1)
    with pytest.raises(CheckpointDamaged, match=f"{name}, block {number}"):
        load_shard(run.directory, manifest, 0)
    assert run.restored() == 1


def test_a_bit_that_flips_in_memory_never_gets_out_of_it(run: Run) -> None:
    receipt = save_shard(run.tier, 1, ONE, 0, 1, state(1))
    shard = shard_path(run.tier, 1, ONE, 0)
    data = bytearray(shard.read_bytes())
    data[data.index(values(state(1))["weights"][4000:4100])] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CheckpointDamaged, match="weights"):
        drain(run.tier, run.directory, receipt, compress=True)
    assert list(incarnation_dir(run.directory, 1, ONE).iterdir()) == []


def test_a_rank_on_the_node_reads_its_tier(run: Run) -> None:
    manifest = run.commit(1)
    run.shard(1).rename(run.shard(1).with_suffix(".away"))
    loaded = load_shard(run.directory, manifest, 0, tier=run.tier)
    assert values(loaded) == values(state(1))
    near = shard_path(run.tier, 1, ONE, 0)
    near.write_bytes(bytes(near.stat().st_size))
    with pytest.raises(CheckpointDamaged, match=str(run.tier)):
        load_shard(run.directory, manifest, 0, tier=run.tier)


def test_what_a_killed_drain_has_left_is_cleared_away(run: Run) -> None:
    run.shard(1).parent.mkdir(parents=True)
    left = run.shard(1).with_name(f".{run.shard(1).name}.1234")
    left.write_bytes(b"half a shard")
    run.commit(1)
    assert run.restored() == 1
    assert not left.exists()


def test_a_full_disk_leaves_nothing_behind(small_disk: Path, tmp_path: Path) -> None:
    receipt = save_shard(tmp_path, 1, ONE, 0, 1, {"zeros": np.zeros(9 << 20), "noise": NOISE})
    noise = np.concatenate([NOISE] * 8) | np.uint8(15)
    more = save_shard(tmp_path, 2, ONE, 0, 1, {"half": noise, "noise": NOISE})
    drain(tmp_path, small_disk, receipt, compress=True)
    with pytest.raises(OSError, match="No space") as caught:
        drain(tmp_path, small_disk, more, compress=True)
    assert caught.value.errno == errno.ENOSPC
    assert "\n" not in str(caught.value), "that is for a journal"
    assert list(incarnation_dir(small_disk, 2, ONE).iterdir()) == []


def test_other_cuts_differences_and_exports_see_no_difference(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    there = Run(tmp_path / "plain")
    small, plain = run.commit(1), there.commit(1, compress=False)
    assert small.receipts[0].size_bytes < plain.receipts[0].size_bytes
    with Shards(run.directory, small) as one, Shards(there.directory, plain) as other:
        assert compare(Source(small, one), Source(plain, other)).same
    cut = load_state(run.directory, small, 1, 2, {"part": Box((150, 0), (50, 100))})
    part = state(1)["part"]
    assert isinstance(part, Part)
    assert np.array_equal(np.asarray(cut["part"]), part.array[150:])  # type: ignore[index]
    export(run.directory, small, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as exported:
        assert exported["bf16"].tobytes() == values(state(1))["bf16"]


def test_an_archive_keeps_them_as_they_are(run: Run, tmp_path: Path) -> None:
    manifest, store = run.commit(1), connect(f"file://{tmp_path / 'store'}")
    assert archive.put(run.directory, 1, store) == manifest.receipts[0].size_bytes
    shutil.rmtree(run.directory)
    run.directory.mkdir()
    brought = fetch(run.directory, store, claim_epoch(run.directory, ONE))
    assert brought == manifest
    assert run.restored() == 1


@pytest.mark.parametrize(("drained", "compress"), [(True, True), (True, False), (False, True)])
def test_later_checkpoints_share_what_is_as_it_was(run: Run, drained: bool, compress: bool) -> None:
    """Copied from a tier; and saved at once, after one that was."""
    first = run.commit(1, compress=compress).receipts[0]
    for step in (2, 3):
        again = state(1) | {"bf16": state(step)["bf16"]}
        place = run.tier if drained else run.directory
        receipt = save_shard(place, step, ONE, 0, 1, again, reuse=5)
        if drained:
            receipt = drain(run.tier, run.directory, receipt, compress=compress, reuse=5)
        manifest = commit(run.directory, step, ONE, run.epoch, [receipt], {})
    assert receipt.bases == {"shard-00000.from-000000000001.1.0.g0.h5": first.size_bytes}
    assert receipt.size_bytes < 450_000
    delete(run.directory, [1, 2])
    assert values(load_shard(run.directory, manifest, 0)) == values(again)
    assert values(load_shard(run.directory, manifest, 0, tier=run.tier)) == values(again)
    assert verify(run.directory).sound
    assert hdf5plugin.FILTERS["zstd"] == 32015
    with h5py.File(run.shard(3)) as file:
        assert file["t/000000"][:].tobytes() == values(again)["two_blocks"]
    with run.shard(3).with_name(*receipt.bases).open("r+b") as base:
        base.truncate(receipt.size_bytes)
    with pytest.raises(NoValidCheckpoint, match="from-000000000001"):
        newest_valid(run.directory)


def test_a_copy_that_fails_leaves_no_shard(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.commit(1)
    receipt = save_shard(run.tier, 2, ONE, 0, 1, state(1))

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("relight.storage.condense.complete", full)
        with pytest.raises(OSError, match="No space"):
            drain(run.tier, run.directory, receipt, reuse=5)
    assert not run.shard(2).exists()
    assert run.restored() == 1
    receipt = save_shard(run.tier, 2, ONE, 0, 1, state(1))
    assert drain(run.tier, run.directory, receipt, reuse=5).bases, "what it has linked serves now"


def test_what_a_lost_node_copied_without_a_receipt_counts_in_any_bytes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partner has another version of the library, or was told to do otherwise."""
    arrays = {key: state(1)[key] for key in ("weights", "bf16", "part")}
    receipt = save_shard(run.tier, 1, ONE, 0, 1, arrays)
    commit(run.directory, 1, ONE, run.epoch, [drain(run.tier, run.directory, receipt)], {})
    receipt = save_shard(run.tier, 2, ONE, 0, 1, arrays | {"bf16": state(2)["bf16"]})

    def killed(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("relight.storage.drain.publish", killed)
        patch.setattr("relight.storage.codec.LEVEL", 9)
        with pytest.raises(KeyboardInterrupt):
            drain(run.tier, run.directory, receipt, compress=True, reuse=5)
    whole, place = run.shard(2).read_bytes(), run.shard(2).stat().st_size // 2
    put(run.shard(2), place, whole[place] ^ 1)
    damaged = run.shard(2).read_bytes()
    replaced = drain(run.tier, run.directory, receipt, compress=True)
    assert replaced.size_bytes == run.shard(2).stat().st_size
    assert run.shard(2).read_bytes() != damaged, "nobody else will ever see to it"
    run.shard(2).write_bytes(whole)
    found = [
        replace(
            drain(run.tier, run.directory, receipt, compress=compress, reuse=reuse), seconds=0.0
        )
        for compress, reuse in ((True, 0), (True, 5), (False, 0))
    ]
    assert found == found[:1] * 3
    assert run.shard(2).read_bytes() == whole
    manifest = commit(run.directory, 2, ONE, run.epoch, found[:1], {})
    assert verify(run.directory, restore=True).sound
    shutil.rmtree(run.tier)
    assert values(load_shard(run.directory, manifest, 0))["bf16"] == values(state(2))["bf16"]


def test_a_copy_of_other_values_is_no_copy(run: Run) -> None:
    run.commit(1)
    shard_path(run.tier, 1, ONE, 0).unlink()
    receipt = save_shard(run.tier, 1, ONE, 0, 1, state(1) | {"small": np.arange(9)})
    with pytest.raises(CheckpointDamaged, match="its values are not those of"):
        drain(run.tier, run.directory, receipt, compress=True)
    assert shard_path(run.tier, 1, ONE, 0).exists()
    assert run.restored() == 1


def test_without_the_library_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run.commit(1)
    receipt = save_shard(run.tier, 2, ONE, 0, 1, state(2))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for use in (
        lambda: load_shard(run.directory, manifest, 0),
        lambda: verify(run.directory),
        lambda: drain(run.tier, run.directory, receipt, compress=True),
    ):
        with pytest.raises(CodecMissing, match=r"pip install 'relight\[compress\]'"):
            use()
    assert list(incarnation_dir(run.directory, 2, ONE).iterdir()) == []
    assert newest_valid(run.directory) == manifest
