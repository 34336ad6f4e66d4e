"""Checkpoints in an archive: complete or not there, verified when they come back."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from stage.local import UNDISTURBED, UNTIL_TOLD, Run
from stage.objects import BUCKET, s3_server

from relight.resilience.config import ArchiveConfig, CheckpointConfig, RunConfig
from relight.resilience.decide.actions import Outcome
from relight.resilience.decide.events import Event
from relight.resilience.decide.storage_events import CheckpointArchived
from relight.resilience.supervise.archiving import Archiving
from relight.resilience.supervise.journal import Record, read_journals
from relight.storage.archive import archived, drop, put, thin
from relight.storage.checkpointer import save_shard
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.errors import ArchiveSilent, Fenced, NoValidCheckpoint
from relight.storage.fetch import fetch, wanted
from relight.storage.layout import Incarnation, manifest_path, shard_path, step_dir
from relight.storage.objects import Objects, connect
from relight.storage.restore import load_shard
from relight.storage.set_aside import set_aside

ONE = Incarnation("1.0", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two checkpoints of two ranks."""
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    epoch = claim_epoch(directory, ONE)
    for step in (1, 2):
        states = [{"w": np.arange(50_000) * step + rank} for rank in range(2)]
        receipts = [save_shard(directory, step, ONE, n, 2, one) for n, one in enumerate(states)]
        commit(directory, step, ONE, epoch, receipts, {})
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Objects:
    return connect(f"file://{tmp_path / 'store'}")


def empty(folder: Path) -> int:
    """What a purge of a scratch file system leaves; the epoch of who comes next."""
    shutil.rmtree(folder)
    folder.mkdir()
    return claim_epoch(folder, Incarnation("2.0", 0))


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index((np.arange(1000, 1050) * 2).tobytes())] ^= 1
    path.write_bytes(data)


def test_what_was_purged_comes_back_whole(directory: Path, store: Objects) -> None:
    assert [put(directory, step, store) is not None for step in (1, 2, 3)] == [True, True, False]
    assert put(directory, 2, store) == 0, "it is there already"
    assert archived(store) == [2, 1]
    epoch = empty(directory)
    brought = fetch(directory, store, epoch)
    assert brought is not None
    assert newest_valid(directory) == brought
    loaded = load_shard(directory, brought, 1)["w"]
    np.testing.assert_array_equal(loaded, np.arange(50_000) * 2 + 1)
    assert fetch(directory, store, epoch) is None, "nothing better is there"


def test_a_damaged_copy_is_passed_over(directory: Path, store: Objects, tmp_path: Path) -> None:
    for step in (1, 2):
        put(directory, step, store)
    spoil(shard_path(tmp_path / "store", 2, ONE, 0))
    epoch = empty(directory)
    brought = fetch(directory, store, epoch)
    assert brought is not None
    assert brought.step == 1
    shutil.rmtree(step_dir(tmp_path / "store", 1))
    epoch = empty(directory)
    with pytest.raises(NoValidCheckpoint, match=r"step 2 of the archive: .*w, block 0"):
        fetch(directory, store, epoch)
    assert newest_valid(directory) is None


def test_what_was_cut_off_is_no_checkpoint(directory: Path, store: Objects, tmp_path: Path) -> None:
    put(directory, 2, store)
    (tmp_path / "store" / "000000000002" / "MANIFEST.json").unlink()
    assert archived(store) == []
    assert fetch(directory, store, empty(directory)) is None


def test_an_older_attempt_brings_nothing_back(directory: Path, store: Objects) -> None:
    put(directory, 2, store)
    epoch = empty(directory)
    claim_epoch(directory, Incarnation("3.0", 0))
    with pytest.raises(Fenced):
        fetch(directory, store, epoch)
    assert newest_valid(directory) is None


def test_only_what_was_lost_by_damage_is_wanted(directory: Path, store: Objects) -> None:
    put(directory, 2, store)
    assert wanted(directory) is None
    set_aside(directory, 2, "a flipped bit")
    assert wanted(directory) == range(2, 3)
    brought = fetch(directory, store, claim_epoch(directory, Incarnation("2.0", 0)))
    assert brought is not None
    assert brought.step == 2
    manifest_path(directory, 2).write_bytes(b"{}")
    brought = fetch(directory, store, claim_epoch(directory, Incarnation("2.0", 1)))
    assert brought is not None
    assert [one.step for one in (brought, newest_valid(directory)) if one] == [2, 2]


def test_what_somebody_deleted_stays_deleted(directory: Path, store: Objects) -> None:
    put(directory, 2, store)
    shutil.rmtree(step_dir(directory, 2))
    assert wanted(directory) is None
    assert fetch(directory, store, claim_epoch(directory, Incarnation("2.0", 0))) is None


def test_the_newest_stay(directory: Path, store: Objects, tmp_path: Path) -> None:
    for step in (1, 2):
        put(directory, step, store)
    half = tmp_path / "store" / "000000000003"
    half.mkdir()
    (half / "shard").touch()
    thin(store, 1, 2)
    assert archived(store) == [2]
    assert store.names("") == ["000000000002", "000000000003"], "3 may be on its way"


def test_what_a_run_has_gone_back_behind_does_not_come_back(
    directory: Path, store: Objects
) -> None:
    """Its bytes are right, its values are not: neither is it kept, nor in the way of a new one."""
    for step in (1, 2):
        put(directory, step, store)
    set_aside(directory, 2, "the loss is nan", spoilt=True)
    assert wanted(directory) is None
    shutil.rmtree(step_dir(directory, 1))
    assert wanted(directory) == range(2), "nothing else is left"
    epoch = claim_epoch(directory, Incarnation("2.0", 0))
    brought = fetch(directory, store, epoch)
    assert brought is not None
    assert brought.step == 1
    new = save_shard(directory, 2, Incarnation("2.0", 0), 0, 1, {"w": np.ones(9)})
    commit(directory, 2, Incarnation("2.0", 0), epoch, [new], {})
    assert put(directory, 2, store) == new.size_bytes, "it is another one"
    fetched = fetch(directory, store, empty(directory))
    assert fetched is not None
    assert fetched.incarnation.attempt == "2.0"
    drop(store, 2)
    assert archived(store) == [1]
    thin(store, 1, 1)
    assert archived(store) == [1]


def test_a_copy_outlives_what_is_deleted_meanwhile(directory: Path, store: Objects) -> None:
    """Retention does not wait for a slow network."""

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def upload(self, source: Path, key: str) -> None:
            shutil.rmtree(step_dir(directory, 1), ignore_errors=True)
            store.upload(source, key)

    assert put(directory, 1, cast("Objects", Slow())) is not None
    assert archived(store) == [1]
    brought = fetch(directory, store, empty(directory))
    assert brought is not None
    assert brought.step == 1


def test_one_lost_object_is_no_reason_to_take_none(
    directory: Path, store: Objects, tmp_path: Path
) -> None:
    for step in (1, 2):
        put(directory, step, store)
    shard_path(tmp_path / "store", 2, ONE, 1).unlink()
    brought = fetch(directory, store, empty(directory))
    assert brought is not None
    assert brought.step == 1
    assert sorted(path.name for path in directory.iterdir()) == ["000000000001", "epochs"]


def test_what_is_damaged_here_goes_aside_when_its_copy_is_here(
    directory: Path, store: Objects, tmp_path: Path
) -> None:
    put(directory, 2, store)
    spoil(shard_path(tmp_path / "store", 2, ONE, 0))
    manifest_path(directory, 2).write_bytes(b"{}")
    epoch = claim_epoch(directory, Incarnation("2.0", 0))
    assert fetch(directory, store, epoch) is None
    assert manifest_path(directory, 2).exists(), "nothing better is there"


def configured(config: RunConfig, directory: Path, archive: ArchiveConfig) -> RunConfig:
    from dataclasses import replace

    return replace(config, checkpoint=CheckpointConfig(directory=directory, archive=archive))


def test_every_second_one_is_copied_and_at_the_end_the_last(
    run_config: RunConfig, directory: Path, store: Objects, tmp_path: Path
) -> None:
    events: list[Event] = []
    url = f"file://{tmp_path / 'store'}"
    config = configured(run_config, directory, ArchiveConfig(url=url, every=2))

    async def run(outcome: Outcome) -> None:
        archiving = Archiving(config, events.append)
        archiving.committed(1)
        await archiving.end(outcome, 60.0)

    asyncio.run(run(Outcome.RESTARTING))
    assert (events, archived(store)) == ([], [])
    asyncio.run(run(Outcome.COMPLETED))
    (event,) = events
    assert isinstance(event, CheckpointArchived)
    assert (event.step, event.failure, archived(store)) == (1, "", [1])
    assert event.size_bytes > 800_000


def test_an_archive_that_is_silent_is_no_reason_to_begin_again(
    run_config: RunConfig, directory: Path
) -> None:
    """Where nothing is here; a checkpoint that is here is enough."""
    config = configured(run_config, directory, ArchiveConfig(url="nope://bucket"))
    set_aside(directory, 2, "a flipped bit")
    epoch = claim_epoch(directory, Incarnation("2.0", 0))
    asyncio.run(Archiving(config, lambda _: None).fetch(epoch))
    epoch = empty(directory)
    with pytest.raises(ArchiveSilent, match="Protocol not known"):
        asyncio.run(Archiving(config, lambda _: None).fetch(epoch))
    claim_epoch(directory, Incarnation("3.0", 0))
    with pytest.raises(Fenced):  # whoever is shut out must not start, and claim, again
        asyncio.run(Archiving(config, lambda _: None).fetch(epoch))


def test_a_run_whose_scratch_was_purged_goes_on_from_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, spec, stop = tmp_path / "train.py", tmp_path / "job.yaml", tmp_path / "stop"
    directory = tmp_path / "scratch"
    program.write_text(UNTIL_TOLD.format(stop=str(stop)))
    spec.write_text(
        f"command: [{sys.executable}, {program}]\nhealth: {{preflight: off}}\n"
        f"checkpoint: {{directory: {directory}, interval: 20 steps,"
        f" archive: {{url: 's3://{BUCKET}/lm', every: 2}}}}\n"
    )

    def records(run: Run, name: str) -> list[Record]:
        return [one for one in read_journals(run.folder / "journal") if one.name == name]

    with s3_server() as env:
        for name in env.keys() - os.environ.keys():
            monkeypatch.setenv(name, env[name])
        first = Run(tmp_path / "first", str(spec))
        first.wait_for_checkpoint()
        stop.touch()
        assert first.end()[0] == 0
        reached = int(str(records(first, "CheckpointCommitted")[-1].data["step"]))
        copied = [one.data for one in records(first, "CheckpointArchived")]
        assert (copied[-1]["step"], {one["failure"] for one in copied}) == (reached, {""})
        shutil.rmtree(directory)
        second = Run(tmp_path / "second", str(spec))
        assert second.end()[0] == 0
    (fetched,) = records(second, "CheckpointFetched")
    assert fetched.data["step"] == reached
    assert records(second, "RanksStarted")[0].data["restored_step"] == reached
    assert UNDISTURBED in second.relight("logs", second.folder.name)
    assert "was brought back from the archive" in second.relight("history", second.folder.name)
