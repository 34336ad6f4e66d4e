"""Commits, fences and retention against a real file system, with real processes at once."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.storage.checkpointer import load_shard, save_shard
from relight.storage.choose import NoValidCheckpoint, candidates, newest_valid, set_aside
from relight.storage.commit import Fenced, claim_epoch, commit, commit_complete, read_receipts
from relight.storage.condition import examine
from relight.storage.durable import make_dirs
from relight.storage.errors import SaveFailed, SaveIncomplete
from relight.storage.layout import (
    Incarnation,
    code_path,
    incarnation_dir,
    manifest_path,
    receipt_path,
    set_aside_dir,
    shard_path,
)
from relight.storage.manifest import Manifest
from relight.storage.notes import Notes
from relight.storage.prune import prune
from relight.storage.receipt import Receipt
from relight.storage.retention import Best, Keep
from relight.storage.verify import verify

FIRST, SECOND, THIRD = (Incarnation(f"{n}.0", n) for n in (1, 2, 3))


def shards(directory: Path, step: int, incarnation: Incarnation, world: int = 2) -> list[Receipt]:
    state = {"w": np.full(10, step)}
    return [save_shard(directory, step, incarnation, rank, world, state) for rank in range(world)]


def committed(directory: Path, step: int, incarnation: Incarnation, epoch: int) -> Manifest:
    return commit(directory, step, incarnation, epoch, shards(directory, step, incarnation), {})


def test_receipts_lie_beside_their_shards(tmp_path: Path) -> None:
    receipts = shards(tmp_path, 4, FIRST)
    receipt_path(tmp_path, 4, FIRST, 1).with_name("receipt-00009.json").write_bytes(b"garbage")
    assert read_receipts(tmp_path, 4, FIRST) == tuple(receipts)
    assert read_receipts(tmp_path, 4, SECOND) == ()


def test_a_whole_save_is_committed(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    receipts = shards(tmp_path, 4, FIRST)
    assert newest_valid(tmp_path) is None
    manifest = commit(tmp_path, 4, FIRST, epoch, reversed(receipts), {"loss": 2.0, "tags": ["a"]})
    assert manifest.receipts == tuple(receipts)
    assert manifest.details == {"loss": 2.0, "tags": ["a"]}
    assert newest_valid(tmp_path) == manifest


def test_what_was_set_aside_counts_as_a_loss_only_if_it_was_committed(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    shards(tmp_path, 3, FIRST)
    set_aside(tmp_path, 3, "loss is nan", spoilt=True)
    assert newest_valid(tmp_path) is None
    committed(tmp_path, 4, FIRST, epoch)
    set_aside(tmp_path, 4, "loss is nan", spoilt=True)
    with pytest.raises(NoValidCheckpoint, match=r"none is valid: step 4, set aside: loss is nan\."):
        newest_valid(tmp_path)


def test_committing_again_changes_nothing(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    manifest = committed(tmp_path, 4, FIRST, epoch)
    assert committed(tmp_path, 4, FIRST, epoch) == manifest
    later = claim_epoch(tmp_path, SECOND)
    assert committed(tmp_path, 4, SECOND, later) == manifest


def test_an_incomplete_save_is_not_committed(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    first, second = shards(tmp_path, 4, FIRST)
    for receipts, reason in [
        ([], "no receipts"),
        ([second], "ranks 0 are missing"),
        ([first, second, second], "each once"),
        ([first, replace(second, step=3)], "rank 1 belongs to another save"),
        ([first, replace(second, size_bytes=1)], "1 were saved"),
    ]:
        with pytest.raises(SaveIncomplete, match=reason):
            commit(tmp_path, 4, FIRST, epoch, receipts, {})
    shard_path(tmp_path, 4, FIRST, 0).unlink()
    with pytest.raises(SaveIncomplete, match="shard-00000"):
        commit(tmp_path, 4, FIRST, epoch, [first, second], {})
    assert newest_valid(tmp_path) is None


def test_a_later_claim_fences_the_earlier_one(tmp_path: Path) -> None:
    old = claim_epoch(tmp_path, FIRST)
    receipts = shards(tmp_path, 4, FIRST)
    new = claim_epoch(tmp_path, SECOND)
    assert new > old
    with pytest.raises(Fenced, match=f"epoch {new} now, this process holds epoch {old}"):
        commit(tmp_path, 4, FIRST, old, receipts, {})
    with pytest.raises(Fenced):
        prune(tmp_path, Keep(last=1), old, FIRST)
    assert not manifest_path(tmp_path, 4).exists()


def test_who_may_open_no_more_files_takes_no_older_checkpoint(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    committed(tmp_path, 4, FIRST, epoch)
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            examine(tmp_path, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))


def test_whose_claims_are_gone_is_not_superseded(tmp_path: Path) -> None:
    """The folder was deleted. Where what it was in is gone, too, a mount may be missing."""
    directory = tmp_path / "mount" / "a"
    epoch = claim_epoch(directory, FIRST)
    shutil.rmtree(directory)
    receipts = shards(directory, 4, FIRST)
    with pytest.raises(FileNotFoundError, match="is gone; was it deleted, moved or unmounted"):
        commit(directory, 4, FIRST, epoch, receipts, {})
    shutil.rmtree(tmp_path / "mount")
    with pytest.raises(SaveFailed, match="No such file"):
        shards(directory, 8, FIRST)


def test_the_next_attempt_commits_what_was_complete(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    committed(tmp_path, 4, FIRST, epoch)
    shards(tmp_path, 8, FIRST)
    save_shard(tmp_path, 12, FIRST, 0, 2, {})
    epoch = claim_epoch(tmp_path, SECOND)
    (manifest,) = commit_complete(tmp_path, epoch)
    assert (manifest.step, manifest.incarnation, manifest.epoch) == (8, FIRST, epoch)
    assert newest_valid(tmp_path) == manifest
    assert commit_complete(tmp_path, epoch) == []


def test_of_two_complete_saves_the_later_incarnation_counts(tmp_path: Path) -> None:
    for incarnation in (SECOND, FIRST):  # claimed in this order, whatever their names
        claim_epoch(tmp_path, incarnation)
        shards(tmp_path, 8, incarnation)
    epoch = claim_epoch(tmp_path, THIRD)
    assert [one.incarnation for one in commit_complete(tmp_path, epoch)] == [FIRST]


def test_processes_that_claim_at_once_get_different_epochs(tmp_path: Path) -> None:
    found = in_processes(8, lambda number: claim_epoch(tmp_path, Incarnation(f"{number}.0", 0)))
    assert sorted(found) == list(range(1, 9))


def test_processes_that_commit_at_once_make_one_manifest(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    writers = [Incarnation(f"{number}.0", 0) for number in range(6)]
    receipts = [shards(tmp_path, 4, writer) for writer in writers]
    manifest_path(tmp_path, 4).write_bytes(b"damaged by somebody")

    def attempt(number: int) -> int:
        made = commit(tmp_path, 4, writers[number], epoch, receipts[number], {})
        return int(made.incarnation.attempt.partition(".")[0])

    in_processes(6, attempt)
    manifest = newest_valid(tmp_path)
    assert manifest is not None
    assert load_shard(tmp_path, manifest, 1).keys() == {"w"}
    assert verify(tmp_path).sound


def test_committers_on_clear_ground_agree_on_the_winner(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    writers = [Incarnation(f"{number}.0", 0) for number in range(6)]
    receipts = [shards(tmp_path, 4, writer) for writer in writers]

    def attempt(number: int) -> int:
        made = commit(tmp_path, 4, writers[number], epoch, receipts[number], {})
        return int(made.incarnation.attempt.partition(".")[0])

    assert len(set(in_processes(6, attempt))) == 1


def test_a_saved_shard_is_not_written_twice(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    receipts = shards(tmp_path, 4, FIRST)
    before = shard_path(tmp_path, 4, FIRST, 0).stat()
    assert shards(tmp_path, 4, FIRST) == receipts
    commit(tmp_path, 4, FIRST, epoch, receipts, {})
    receipt_path(tmp_path, 4, FIRST, 0).unlink()
    assert shards(tmp_path, 4, FIRST) == receipts
    after = shard_path(tmp_path, 4, FIRST, 0).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_shard_without_receipt_is_written_anew(tmp_path: Path) -> None:
    shards(tmp_path, 4, FIRST)
    receipt_path(tmp_path, 4, FIRST, 0).write_bytes(b"torn")
    shard_path(tmp_path, 4, FIRST, 0).write_bytes(b"torn")
    epoch = claim_epoch(tmp_path, FIRST)
    committed(tmp_path, 4, FIRST, epoch)
    assert verify(tmp_path).sound


def test_a_clock_that_goes_backwards_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Backwards(datetime):
        now_s = 2_000_000_000.0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            cls.now_s -= 3600
            return cls.fromtimestamp(cls.now_s, tz)

    monkeypatch.setattr("relight.storage.commit.datetime", Backwards)
    epoch = claim_epoch(tmp_path, FIRST)
    first = committed(tmp_path, 1, FIRST, epoch)
    epoch = claim_epoch(tmp_path, SECOND)
    newest = committed(tmp_path, 2, SECOND, epoch)
    assert newest.created < first.created
    assert newest_valid(tmp_path) == newest
    assert prune(tmp_path, Keep(last=1), epoch, SECOND).steps == (1,)
    with pytest.raises(Fenced):
        committed(tmp_path, 3, FIRST, epoch - 1)


def test_a_linked_directory_is_the_directory(tmp_path: Path) -> None:
    """Home directories on clusters are often links into another file system."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    epoch = claim_epoch(link, FIRST)
    for step in (1, 2, 3):
        committed(link, step, FIRST, epoch)
    set_aside(link, 3, "a flipped bit")
    assert prune(link, Keep(last=1), epoch, FIRST).steps == (1,)
    for directory in (link, real):
        manifest = newest_valid(directory)
        assert manifest is not None
        assert manifest.step == 2
        assert list(load_shard(directory, manifest, 1)) == ["w"]
    assert link.is_symlink()


def test_pruning_keeps_the_last_and_removes_leftovers(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    for step in (1, 2, 3):
        committed(tmp_path, step, FIRST, epoch)
    save_shard(tmp_path, 4, FIRST, 0, 2, {})
    epoch = claim_epoch(tmp_path, SECOND)
    for step in (4, 5, 6):
        committed(tmp_path, step, SECOND, epoch)
    save_shard(tmp_path, 7, FIRST, 0, 2, {})
    save_shard(tmp_path, 5, THIRD, 0, 2, {})
    late = incarnation_dir(tmp_path, 5, SECOND) / ".shard-00000.h5.1234"
    late.write_bytes(b"half a copy from a tier, of a node that was lost")
    pruned = prune(tmp_path, Keep(last=3), epoch, THIRD)
    assert pruned.steps == (1, 2, 3)
    assert pruned.leftovers == (incarnation_dir(tmp_path, 4, FIRST),)
    assert [one.step for one in candidates(tmp_path)] == [7, 6, 5, 4]
    assert not late.exists()
    assert incarnation_dir(tmp_path, 5, THIRD).exists(), "the live incarnation is left alone"
    assert incarnation_dir(tmp_path, 7, FIRST).exists(), "it may still be completed"
    assert verify(tmp_path).sound


def test_the_last_one_before_a_doubt_stays(tmp_path: Path) -> None:
    """A loss that is not finite yet may mean that all of them since are spoilt."""
    epoch = claim_epoch(tmp_path, FIRST)
    for step in (1, 2, 3, 4):
        committed(tmp_path, step, FIRST, epoch)
    assert prune(tmp_path, Keep(last=1), epoch, FIRST, doubted=3).steps == (1, 3)
    assert prune(tmp_path, Keep(last=1), epoch, FIRST).steps == (2,)


def test_pruning_touches_neither_damaged_nor_the_only_valid(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    for step in (1, 2, 3):
        committed(tmp_path, step, FIRST, epoch)
    for step in (1, 3):
        shard_path(tmp_path, step, FIRST, 0).write_bytes(b"")
    assert prune(tmp_path, Keep(last=1), epoch, FIRST).steps == ()
    chosen = newest_valid(tmp_path)
    assert chosen is not None
    assert chosen.step == 2
    assert [one.condition for one in candidates(tmp_path)] == ["damaged", "valid", "damaged"]


def diffs(directory: Path) -> set[str]:
    return {path.stem for path in code_path(directory, "").parent.iterdir()}


def test_a_diff_goes_when_no_checkpoint_names_it_and_no_run_can_be_about_to(tmp_path: Path) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    for step, name in enumerate(["gone", "kept"]):
        notes = Notes(provenance={"code": {"diff_sha256": name}})
        receipt = save_shard(tmp_path, step, FIRST, 0, 1, {}, notes)
        commit(tmp_path, step, FIRST, epoch, [receipt], {})
    make_dirs(code_path(tmp_path, "").parent)
    for name in ("gone", "kept", "young"):
        code_path(tmp_path, name).write_text("+ a line")
    for name in ("gone", "kept"):
        os.utime(code_path(tmp_path, name), (0, 0))
    committed(tmp_path, 7, FIRST, epoch)
    set_aside(tmp_path, 7, "damaged: it may name any of them")
    prune(tmp_path, Keep(last=2), epoch, FIRST)
    assert diffs(tmp_path) == {
        "gone",
        "kept",
        "young",
    }
    shutil.rmtree(set_aside_dir(tmp_path))
    prune(tmp_path, Keep(last=1), epoch, FIRST)
    assert diffs(tmp_path) == {"kept", "young"}


def test_the_best_one_stays_by_what_was_logged_and_a_damaged_best_counts_for_nothing(
    tmp_path: Path,
) -> None:
    epoch = claim_epoch(tmp_path, FIRST)
    for step, loss in enumerate([0.1, 0.2, 0.3, 0.4, 0.5]):
        receipt = save_shard(tmp_path, step, FIRST, 0, 1, {}, Notes(metrics={"loss": loss}))
        commit(tmp_path, step, FIRST, epoch, [receipt], {})
    shard_path(tmp_path, 0, FIRST, 0).write_bytes(b"")
    keep = Keep(last=1, best=Best(metric="loss"))
    assert prune(tmp_path, keep, epoch, FIRST).steps == (2, 3)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["save", "lose", "half", "prune"]), max_size=12), st.integers(1, 3))
def test_whatever_happens_the_newest_valid_one_is_never_pruned(
    tmp_path_factory: pytest.TempPathFactory, story: list[str], last: int
) -> None:
    directory: Path = tmp_path_factory.mktemp("story")
    epoch = claim_epoch(directory, FIRST)
    valid: list[int] = []
    for step, event in enumerate(story):
        if event == "save":
            committed(directory, step, FIRST, epoch)
            valid.append(step)
        elif event == "lose" and valid:
            shard_path(directory, valid.pop(), FIRST, 0).unlink()
        elif event == "half":
            save_shard(directory, step, SECOND, 1, 2, {})
        elif event == "prune":
            prune(directory, Keep(last=last), epoch, FIRST)
            valid = valid[-last:]
    conditions = {one.step: one.condition for one in candidates(directory)}
    assert [step for step, found in sorted(conditions.items()) if found == "valid"] == valid


def in_processes(number: int, work: object) -> list[int]:
    """Runs `work(n)` in forks that start at the same moment, and returns their small numbers."""
    assert callable(work)
    assert threading.active_count() == 1, "a fork would copy locks that other threads hold"
    ready, go = os.pipe()
    children = []
    for place in range(number):
        child = os.fork()
        if child == 0:
            result = 255
            try:
                os.close(go)
                os.read(ready, 1)
                result = work(place)
            finally:
                os._exit(result)
        children.append(child)
    os.close(go)
    os.close(ready)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
