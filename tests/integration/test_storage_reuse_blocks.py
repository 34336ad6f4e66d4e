"""Of arrays that change in part only the blocks that did are written; no value is ever wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.storage import archive, blocks
from relight.storage.boxes import Box, Part
from relight.storage.checkpointer import CheckpointDamaged, load_shard, load_state, save_shard
from relight.storage.choose import NoValidCheckpoint, newest_valid, set_aside
from relight.storage.commit import claim_epoch, commit
from relight.storage.compare import Source, compare
from relight.storage.condition import steps
from relight.storage.drain import drain
from relight.storage.export import export
from relight.storage.fetch import fetch
from relight.storage.input import Input
from relight.storage.layout import Incarnation, manifest_path, shard_path, step_dir
from relight.storage.manifest import Manifest
from relight.storage.numpy_state import in_pages
from relight.storage.objects import connect
from relight.storage.prune import delete
from relight.storage.read_shard import Shard
from relight.storage.shards import Shards
from relight.storage.verify import verify

ONE = Incarnation("1.0", 0)
BLOCK = 65536
SIZE = 7 * BLOCK - 1000  # seven blocks, the last one short
State = Mapping[str, object]


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Of 64 KiB: what is shown does not depend on how long they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.count, "__defaults__", (BLOCK,))
        for module in ("blocks", "kept", "output", "pack", "reuse"):
            patch.setattr(f"relight.storage.{module}.BLOCK_BYTES", BLOCK)
        yield


def table(fill: list[int], size_bytes: int = SIZE) -> np.ndarray:
    """Block by block of one value: many blocks are alike, in this array and in others."""
    return np.repeat(np.array(fill, np.uint8), BLOCK)[:size_bytes]


def save(directory: Path, step: int, state: State, reuse: int = 5) -> Manifest:
    receipt = save_shard(directory, step, ONE, 0, 1, state, reuse=reuse)
    return commit(directory, step, ONE, 1, [receipt], {})


def sizes(manifest: Manifest) -> int:
    return manifest.receipts[0].size_bytes


def index(path: Path) -> dict[str, Any]:
    with h5py.File(path) as file:
        found: dict[str, Any] = json.loads(zlib.decompress(file["index"][:]))
        return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    claim_epoch(folder, ONE)
    return folder


FILLS = [[1, 2, 3, 4, 5, 6, 7], [1, 2, 9, 4, 5, 6, 7], [1, 2, 9, 4, 5, 6, 8], [0, 2, 9, 4, 5, 6, 8]]


@pytest.fixture
def saved(directory: Path) -> list[Manifest]:
    """In each save after the first, another block is new."""
    return [save(directory, n, {"table": table(fill)}) for n, fill in enumerate(FILLS)]


def test_blocks_that_are_as_they_were_stay_where_they_are(
    directory: Path, saved: list[Manifest]
) -> None:
    room = sizes(saved[0]) - SIZE
    assert [sizes(one) < 2 * BLOCK + room for one in saved] == [False, True, True, True]
    found = index(shard_path(directory, 3, ONE, 0))
    assert found["format"] == 4
    # Always the file that has the bytes: where they lie in it, and for how many saves now.
    name = "shard-00000.from-00000000000{}.1.0.g0.h5".format
    assert [
        [row[1] // BLOCK, -(-row[2] // BLOCK), *row[3:7], row[8]] for row in found["kept_in_part"]
    ] == [
        [1, 2, name(0), "t", 0, BLOCK, 3],
        [2, 3, name(1), "new", 0, 0, 2],
        [3, 6, name(0), "t", 0, 3 * BLOCK, 3],
        [6, 7, name(2), "new", 0, 0, 1],
    ]
    delete(directory, [0, 1, 2])
    (loaded,) = load_shard(directory, saved[3], 0).values()
    np.testing.assert_array_equal(loaded, table(FILLS[3]))
    assert verify(directory, restore=True).sound


def test_other_tools_read_it_as_any_hdf5_file(directory: Path, saved: list[Manifest]) -> None:
    delete(directory, [0, 1, 2])
    path = shard_path(directory, 3, ONE, 0)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["t/000000"][:], table(FILLS[3]))
    for block, (before, value) in enumerate(zip([0, *FILLS[3]], FILLS[3], strict=False)):
        if block:
            tool = ["h5dump", "-y", "-w", "0", "-d", "/t/000000", "-s", str(block * BLOCK - 1)]
            dumped = subprocess.run(
                [*tool, "-c", "2", path], capture_output=True, text=True, check=True, cwd="/"
            ).stdout
            assert f"{before}, {value}\n" in dumped
    listed = subprocess.run(["h5ls", "-r", path], capture_output=True, text=True, check=True)
    assert {"/t/000000", "/new/000000"} <= set(listed.stdout.split())


def test_damage_names_array_block_and_file(directory: Path, saved: list[Manifest]) -> None:
    with Shard(shard_path(directory, 3, ONE, 0), saved[3].receipts[0]) as shard:
        (run, _) = shard.index.runs()
        places = list(shard.places(run, in_pages(SIZE).data))
    for number, (digest, place) in enumerate(places):
        with Input(place.file) as file:
            assert file.fill((place.at, place.data), place.way) == digest
        assert isinstance(place.at, int)
        flip(place.file, place.at)
        (finding,) = verify(directory, 3).findings
        assert (finding.array, finding.block) == ("table", number)
        assert (place.file.name in finding.reason) == ("from" in place.file.name)
        with pytest.raises(CheckpointDamaged, match=f"table, block {number}"):
            load_shard(directory, saved[3], 0)
        flip(place.file, place.at)
    assert verify(directory).sound
    (step_dir(directory, 3) / ONE.folder / next(iter(saved[3].receipts[0].bases))).unlink()
    newest = newest_valid(directory)
    assert newest is not None
    assert newest.step == 2


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def test_blocks_are_written_again_after_so_many_saves(directory: Path) -> None:
    """So a shard leans on no more files than that."""
    fill = [0] * 7
    for step in range(9):
        fill[step % 7] = step + 1
        receipt = save(directory, step, {"table": table(fill)}, reuse=3).receipts[0]
        assert len(receipt.bases) <= 3
        steps_of = {int(base.partition("from-")[2][:12]) for base in receipt.bases}
        assert all(step - 3 <= one < step for one in steps_of)


def test_what_would_keep_a_large_file_for_little_is_written(directory: Path) -> None:
    """Unless that file is kept for an array that has not changed at all."""
    dense, frozen = table(list(range(40)), 40 * BLOCK), table([7] * 7)
    states = [
        {"dense": dense + np.uint8(step), "table": table(FILLS[step]), "frozen": frozen}
        for step in (0, 1)
    ]
    for step, state in enumerate(states):
        alone = {key: state[key] for key in ("dense", "table")}
        manifest = save(directory, step, alone)
    assert not manifest.receipts[0].bases
    save(directory, 2, states[0])
    manifest = save(directory, 3, states[1])
    assert len(manifest.receipts[0].bases) == 1
    assert sizes(manifest) < dense.nbytes + 2 * BLOCK


def test_very_many_stretches_are_not_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relight.storage.kept._MOST_STRETCHES", 2)
    save(directory, 0, {"table": table([1] * 7)})
    manifest = save(directory, 1, {"table": table([1, 2, 1, 1, 1, 2, 1])})
    rows = index(shard_path(directory, 1, ONE, 0))["kept_in_part"]
    assert sorted(row[1:3] for row in rows) == [[0, BLOCK], [2 * BLOCK, 5 * BLOCK]]
    assert sizes(manifest) < 5 * BLOCK
    assert verify(directory, restore=True).sound


@pytest.mark.parametrize("compress", [False, True])
def test_a_copy_from_a_tier_shares_blocks_too(
    directory: Path, tmp_path: Path, compress: bool
) -> None:
    """Of what is compressed, only whole arrays."""
    tier, dice = tmp_path / "tier", np.random.default_rng(1)
    tier.mkdir()
    noise = dice.integers(0, 256, SIZE, np.uint8)
    for step in range(3):
        noise[step * BLOCK] ^= 1
        state = {"noise": noise, "table": table(FILLS[step]), "step": np.arange(step)}
        receipt = save_shard(tier, step, ONE, 0, 1, state)
        receipt = drain(tier, directory, receipt, compress=compress, reuse=5)
        manifest = commit(directory, step, ONE, 1, [receipt], {})
    rows = index(shard_path(directory, 2, ONE, 0))["kept_in_part"]
    assert len({row[0] for row in rows}) == (1 if compress else 2)
    delete(directory, [0, 1])
    shutil.rmtree(tier)
    loaded = load_shard(directory, manifest, 0)
    np.testing.assert_array_equal(loaded["noise"], noise)
    np.testing.assert_array_equal(loaded["table"], state["table"])
    assert verify(directory).sound
    with h5py.File(shard_path(directory, 2, ONE, 0)) as file:
        np.testing.assert_array_equal(file["t/000000"][:], noise)


def test_differences_exports_and_archives_see_no_difference(
    directory: Path, saved: list[Manifest], tmp_path: Path
) -> None:
    with Shards(directory, saved[1]) as one, Shards(directory, saved[3]) as other:
        (apart,) = compare(Source(saved[1], one), Source(saved[3], other)).arrays
    assert apart.elements == 2 * BLOCK - 1000
    export(directory, saved[3], tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as exported:
        np.testing.assert_array_equal(exported["table"], table(FILLS[3]))
    store = connect(f"file://{tmp_path / 'store'}")
    archive.put(directory, 3, store)
    shutil.rmtree(directory)
    directory.mkdir()
    assert fetch(directory, store, claim_epoch(directory, ONE)) == saved[3]
    assert verify(directory, restore=True).sound


@dataclass
class Stage:
    """A run of two ranks: a table in two parts, and one that both have for themselves."""

    directory: Path
    epoch: int
    rows: list[int] = field(default_factory=lambda: [0] * 14)
    own: list[int] = field(default_factory=lambda: [1] * 7)
    states: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    damaged: bool = False

    def save(self, changes: list[tuple[int, int]], reuse: int) -> None:
        for place, value in changes:
            if place < 14:
                self.rows[place] = value
            else:
                self.own[place - 14] = value
        step = len(self.states)
        whole, own = table(self.rows, 14 * BLOCK).reshape(14, BLOCK), table(self.own)
        receipts = [
            save_shard(
                self.directory,
                step,
                ONE,
                rank,
                2,
                {"part": Part(whole[7 * rank :][:7], whole.shape, (7 * rank, 0)), "own": own},
                reuse=reuse,
            )
            for rank in (0, 1)
        ]
        commit(self.directory, step, ONE, self.epoch, receipts, {})
        self.states[step] = whole, own

    def delete_before(self, count: int) -> None:
        delete(self.directory, steps(self.directory)[1:][-count:])

    def damage(self, which: int, at: int) -> None:
        files = sorted(self.directory.glob("0*/*/shard-*.h5"))
        if files:
            path = files[which % len(files)]
            flip(path, at * 509 % path.stat().st_size)
            self.damaged = True

    def check(self) -> None:
        """Of every step each value is what was saved, or its damage is named."""
        for step in steps(self.directory):
            found = {(one.array, one.block) for one in verify(self.directory, step).findings}
            assert self.damaged or not found
            manifest = Manifest.parse(manifest_path(self.directory, step).read_bytes())
            try:
                here = np.full(SIZE, 255, np.uint8)  # a restore writes into what the program has
                loaded = [
                    load_shard(self.directory, manifest, 0),
                    load_shard(self.directory, manifest, 1, into={("own",): here}),
                ]
                cut = load_state(self.directory, manifest, 1, 3, {"part": Box((4, 0), (6, BLOCK))})
            except CheckpointDamaged as error:
                if (error.array, error.block) not in found:
                    raise
                continue
            assert found <= {("header", None)}
            whole, own = self.states[step]
            assert loaded[1]["own"] is here
            for rank, one in enumerate(loaded):
                assert np.array_equal(np.asarray(one["part"]), whole[7 * rank :][:7])
                assert np.array_equal(np.asarray(one["own"]), own)
            assert np.array_equal(np.asarray(cut["part"]), whole[4:10])

    def go_on(self) -> None:
        """As a run does: what is damaged goes aside."""
        while self.states and (manifest := self._newest()):
            try:
                for rank in (0, 1):
                    load_shard(self.directory, manifest, rank)
                return
            except CheckpointDamaged as error:
                set_aside(self.directory, manifest.step, str(error))

    def _newest(self) -> Manifest | None:
        try:
            return newest_valid(self.directory)
        except NoValidCheckpoint:
            return None


CHANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=6)
ACTIONS = st.one_of(
    st.tuples(st.just("save"), CHANGES, st.integers(0, 3)),
    st.tuples(st.just("save"), CHANGES, st.integers(1, 3)),
    st.tuples(st.just("delete_before"), st.integers(1, 3)),
    st.tuples(st.just("damage"), st.integers(0, 30), st.integers(0, 10_000)),
    st.tuples(st.just("go_on")),
)


@given(st.lists(ACTIONS, min_size=3, max_size=9))
@settings(max_examples=15, deadline=None)
def test_whatever_changes_and_is_lost_no_value_is_wrong(actions: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        stage = Stage(Path(folder), claim_epoch(Path(folder), ONE))
        stage.save([], 3)
        for name, *arguments in actions:
            getattr(stage, str(name))(*arguments)
        stage.save([(3, 2)], 3)
        stage.check()
