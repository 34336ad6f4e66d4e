"""Shards in a node's tier: copied whole or not at all, read where they are right, and cleared."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from relight.resilience.worker.drains import Drains
from relight.resilience.worker.environment import TierPlace
from relight.resilience.worker.line import Line
from relight.resilience.worker.node_tier import NodeTier
from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.commit import claim_epoch, commit, commit_complete
from relight.storage.drain import drain
from relight.storage.errors import CheckpointDamaged
from relight.storage.layout import Incarnation, incarnation_dir, receipt_path, shard_path
from relight.storage.manifest import Manifest
from relight.storage.receipt import Receipt
from relight.storage.tier import drop_foreign, drop_older, room_bytes
from relight.storage.tier_folder import hold, make_private, remove, sweep, tier_folder

ONE = Incarnation("1.0", 0)
VALUES = np.arange(50_000)


class Node:
    """One rank with a tier, and the directory that all nodes see."""

    def __init__(self, place: Path) -> None:
        self.directory = place / "checkpoints"
        self.tier = tier_folder(place, "run", "n1")
        self.directory.mkdir()
        make_private(self.tier)
        self.epoch = claim_epoch(self.directory, ONE)

    def save(self, step: int) -> Receipt:
        return save_shard(self.tier, step, ONE, 0, 1, {"w": VALUES + step})

    def commit(self, step: int) -> Manifest:
        receipt = drain(self.tier, self.directory, self.save(step))
        return commit(self.directory, step, ONE, self.epoch, [receipt], {})

    def flip(self, step: int) -> None:
        shard = shard_path(self.tier, step, ONE, 0)
        data = bytearray(shard.read_bytes())
        data[data.index((VALUES + step)[1000:1050].tobytes())] ^= 1
        shard.write_bytes(data)

    def steps(self) -> list[str]:
        return sorted(path.name.lstrip("0") for path in self.tier.iterdir())

    def left(self, step: int) -> list[str]:
        return [path.name for path in incarnation_dir(self.directory, step, ONE).iterdir()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_drained_shard_is_a_checkpoint_like_any_other(node: Node) -> None:
    for step in (1, 2, 3):
        manifest = node.commit(step)
    assert node.steps() == ["2", "3"]
    loaded = load_shard(node.directory, manifest, 0)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 3)
    assert manifest.receipts[0].seconds > 0


def test_a_bit_that_flips_in_memory_never_gets_out_of_it(node: Node) -> None:
    receipt = node.save(1)
    node.flip(1)
    with pytest.raises(CheckpointDamaged, match="digest"):
        drain(node.tier, node.directory, receipt)
    assert node.left(1) == []
    assert node.steps() == []
    assert commit_complete(node.directory, node.epoch) == []


def test_a_full_disk_leaves_nothing_behind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt, send = node.save(1), os.sendfile

    def full(out: int, source: int, at: int, count: int) -> int:
        if at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return send(out, source, at, count // 2048)

    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(OSError, match="No space"):
        drain(node.tier, node.directory, receipt)
    assert (node.left(1), node.steps()) == ([], [])


def test_a_drain_that_is_killed_has_saved_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    receipt = node.save(1)
    monkeypatch.setattr("relight.storage.drain.publish", killed)
    with pytest.raises(KeyboardInterrupt):
        drain(node.tier, node.directory, receipt)
    assert node.left(1) == ["shard-00000.h5"]
    assert commit_complete(node.directory, node.epoch) == []


@pytest.mark.parametrize("compress", [False, True])
def test_what_a_save_that_failed_has_left_gives_way_but_nothing_with_a_receipt(
    node: Node, compress: bool
) -> None:
    torn = shard_path(node.directory, 1, ONE, 0)
    for _ in range(2):
        receipt = node.save(1)
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_bytes(shard_path(node.tier, 1, ONE, 0).read_bytes()[:-1000] + bytes(1000))
        copied = drain(node.tier, node.directory, receipt, compress=compress)
        receipt_path(node.directory, 1, ONE, 0).unlink()
    manifest = commit(node.directory, 1, ONE, node.epoch, [copied], {})
    loaded = load_shard(node.directory, manifest, 0)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 1)
    receipt_path(node.directory, 1, ONE, 0).write_text(copied.to_json())
    torn.write_bytes(damaged := bytes(torn.stat().st_size))
    with pytest.raises(CheckpointDamaged):
        drain(node.tier, node.directory, receipt, compress=compress)
    assert torn.read_bytes() == damaged


def test_a_copy_is_read_where_it_is_whole_and_nothing_else(node: Node) -> None:
    manifest = node.commit(1)
    far = shard_path(node.directory, 1, ONE, 0)
    far.rename(far.with_suffix(".away"))
    loaded = load_shard(node.directory, manifest, 0, tier=node.tier)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 1)
    node.flip(1)
    with pytest.raises(CheckpointDamaged) as caught:
        load_shard(node.directory, manifest, 0, tier=node.tier)
    assert Path(caught.value.file).is_relative_to(node.tier)
    far.with_suffix(".away").rename(far)
    os.truncate(shard_path(node.tier, 1, ONE, 0), 1000)
    loaded = load_shard(node.directory, manifest, 0, tier=node.tier)["w"]
    assert np.array_equal(np.asarray(loaded), VALUES + 1)


def test_what_no_checkpoint_lists_goes_but_not_what_is_being_written(node: Node) -> None:
    manifest = node.commit(1)
    node.save(5)
    other = Incarnation("1.0", 1)
    save_shard(node.tier, 6, other, 0, 1, {"w": VALUES})
    drop_foreign(node.tier, manifest, other)
    assert node.steps() == ["1", "6"]
    drop_foreign(node.tier, None, other)
    assert node.steps() == ["6"]


def test_what_a_rank_has_left_goes_once_a_later_checkpoint_is_there(node: Node) -> None:
    """Rank 1 was on this node, or was copied to it as to a partner."""
    node.commit(1)
    save_shard(node.tier, 1, ONE, 1, 2, {"w": VALUES})
    shard_path(node.tier, 1, ONE, 1).with_name("shard-00002.h5.0123").touch()
    agents = Drains(set())
    agents.lodge(node.tier)
    agents.overtaken(1)
    node.commit(2)
    agents.overtaken(2)
    for thread in [one for one in threading.enumerate() if one.name == "relight-tier"]:
        thread.join()
    shards = [path.relative_to(node.tier) for path in node.tier.rglob("shard-*")]
    assert [str(path) for path in sorted(shards)] == [
        f"00000000000{step}/1.0.g0/shard-00000.h5" for step in (1, 2)
    ]


def test_a_tier_that_vanishes_comes_back_private_or_not_at_all(node: Node, tmp_path: Path) -> None:
    """Somebody clears away all of it between two calls of a save."""
    line = Line.__new__(Line)
    line.lost, line.copied = True, threading.Event()
    line.copied.set()
    told: list[str] = []
    tier, run = NodeTier(TierPlace(node.tier, 10**9), 0, line, told.append), node.tier.parent

    def save(folder: Path) -> Receipt:
        shutil.rmtree(run, ignore_errors=True)
        return save_shard(folder, 1, ONE, 0, 1, {"w": VALUES})

    assert tier.save(1000, save) is None
    assert (len(told), run.exists()) == (1, False)
    assert tier.save(1000, lambda folder: save_shard(folder, 2, ONE, 0, 1, {"w": VALUES}))
    assert stat.S_IMODE(run.stat().st_mode) == stat.S_IMODE(node.tier.stat().st_mode) == 0o700


def test_the_room_of_a_rank_is_its_share_of_what_is_there(node: Node) -> None:
    assert room_bytes(node.tier, 0, 10**6) == 10**6
    receipt = node.save(1)
    assert room_bytes(node.tier, 0, 10**6) == 10**6 - receipt.size_bytes
    assert room_bytes(node.tier, 1, 10**6) == 10**6
    there = os.statvfs(node.tier)
    assert room_bytes(node.tier, 1, 1 << 60) <= there.f_blocks * there.f_frsize


def test_a_folder_is_private_and_goes_with_the_last_that_holds_it(tmp_path: Path) -> None:
    folder = tier_folder(tmp_path, "run", "n1")
    held = [hold(folder), hold(folder)]
    (folder / "shard").touch()
    for fd in held:
        sweep(tmp_path)
        remove(folder)
        assert (folder / "shard").exists()
        os.close(fd)
    sweep(tmp_path)
    assert not folder.parent.exists()
    open_to_all = tier_folder(tmp_path, "other", "n1")
    open_to_all.parent.mkdir()
    open_to_all.parent.chmod(0o755)
    with pytest.raises(PermissionError, match="private"):
        make_private(open_to_all)


def test_a_tier_is_made_but_not_what_it_lies_in(tmp_path: Path) -> None:
    tier = tmp_path / "mine"
    make_private(tier_folder(tier, "run", "n1"))
    assert stat.S_IMODE(tier.stat().st_mode) == 0o700
    for missing, reason in (("mount/mine", "No such file"), ("mine/file/mine", "Not a directory")):
        (tier / "file").touch()
        with pytest.raises(OSError, match=rf"cannot be made in .*\({reason}.*make it on each node"):
            hold(tier_folder(tmp_path / missing, "run", "n1"))
    assert not (tmp_path / "mount").exists()


def test_nothing_goes_that_only_looks_like_a_tier(tmp_path: Path) -> None:
    """A folder of somebody else's, a link to one, and a checkout of this very project."""
    tier, victim = tmp_path / "tier", tmp_path / "victim"
    for folder in (tier / "relight-project" / "data", victim / "data"):
        folder.mkdir(parents=True)
        (folder / "precious").touch()
    (tier / "relight-project").chmod(0o700)
    victim.chmod(0o700)
    (tier / "relight-linked").symlink_to(victim)
    ours = tier_folder(tier, "killed", "n1")
    os.close(hold(ours))
    (ours / "000000000001").mkdir()
    (ours / "away").symlink_to(victim)
    for name in ("project", "linked"):
        remove(tier_folder(tier, name, "data"))
        with pytest.raises(OSError, match=r"not relight's|Not a directory|Too many levels"):
            make_private(tier_folder(tier, name, "n1"))
    sweep(tier)
    assert sorted(path.name for path in tier.iterdir()) == ["relight-linked", "relight-project"]
    assert (tier / "relight-project" / "data" / "precious").exists()
    assert (victim / "data" / "precious").exists()


def test_ranks_of_a_node_clear_away_at_once(node: Node) -> None:
    """Each removes what is its own, folders too, while the others look and write."""
    line = Line.__new__(Line)
    line.lost, line.copied = True, threading.Event()  # nobody copies, so nobody waits
    line.copied.set()
    told: list[str] = []

    def one(rank: int) -> None:
        tier = NodeTier(TierPlace(node.tier, 10**6), rank, line, told.append)
        for step in range(1, 60):
            write = partial(_write, step, rank)
            receipt = tier.save(1000, write)
            assert receipt is not None, told
            drop_older(node.tier, receipt)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
    assert (node.steps(), told) == (["58", "59"], [])


def _write(step: int, rank: int, folder: Path) -> Receipt:
    return save_shard(folder, step, ONE, rank, 4, {"w": VALUES[:10]})
