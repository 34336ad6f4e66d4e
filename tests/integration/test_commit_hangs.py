"""A commit that does not come to its end: the file system of the checkpoints is away."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import CheckpointCommitted, Event, SaveFailed, Superseded
from relight.resilience.supervise import commits as module
from relight.resilience.supervise.saves import Saves
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation
from relight.storage.receipt import Receipt


def receipt(generation: int = 1) -> Receipt:
    return Receipt(
        step=7,
        rank=0,
        world_size=1,
        incarnation=Incarnation("7.0", generation),
        file=f"7.0.g{generation}/shard-00000.h5",
        size_bytes=4096,
        digest="ab" * 16,
        payload_bytes=100,
        seconds=0.25,
        index_at=2048,
        index_bytes=300,
        digests_at=1024,
        digests_bytes=32,
    )


def test_it_is_a_failed_save_until_it_succeeds_after_all(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr(module, "commit", lambda *_: back.wait(20))
    monkeypatch.setattr(module, "SETTLE_LIMIT_S", 0.1)
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        saves.saved(receipt(), {})
        await asyncio.gather(saves.settle(), saves.settle())
        (failed,) = told
        assert isinstance(failed, SaveFailed), "told once"
        assert failed.generation == 1, "a later one does not answer for it"
        assert (failed.step, failed.errno) == (7, errno.ETIMEDOUT)
        back.set()
        monkeypatch.setattr(module, "SETTLE_LIMIT_S", 20.0)
        await saves.settle()
        assert isinstance(told[-1], CheckpointCommitted)
        assert told[-1].step == 7
        assert len(told) == 2

    asyncio.run(story())


def test_who_has_less_time_waits_for_less(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        with away(monkeypatch):
            await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
            saved(saves, run_config.checkpoint.directory, 1)
            async with asyncio.timeout(10):
                await saves.settle(lambda: 0.1)
            assert [type(event) for event in told] == [SaveFailed]

    asyncio.run(story())


@contextmanager
def away(patch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A file system in which the commit of generation 1 hangs until it is back."""
    back = threading.Event()

    def slow(directory: Path, step: int, writer: Incarnation, *rest: object) -> object:
        if writer.generation == 1:
            back.wait(20)
        return commit(directory, step, writer, *rest)  # type: ignore[arg-type]

    patch.setattr(module, "commit", slow)
    try:
        yield back
    finally:
        back.set()


def saved(saves: Saves, directory: Path, generation: int) -> None:
    """The only rank has saved step 7."""
    shard = directory / "000000000007" / receipt(generation).file
    shard.parent.mkdir(parents=True)
    shard.write_bytes(bytes(4096))
    saves.saved(receipt(generation), {})


def test_a_commit_that_ends_under_the_next_generation_does_not_end_it(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run_config.checkpoint.directory
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        with away(monkeypatch) as back:
            await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
            saved(saves, directory, 1)
            old = asyncio.all_tasks() - {asyncio.current_task()}
            await saves.begin(Incarnation("7.0", 2), world_size=1, committed_step=-1)
            back.set()
            await asyncio.wait(old)
        assert told == [], "its epoch has passed, and the run goes on"
        saved(saves, directory, 2)
        await saves.settle()
        (committed,) = told
        assert isinstance(committed, CheckpointCommitted)
        assert (committed.step, committed.generation) == (7, 2)

    asyncio.run(story())


def test_a_commit_that_still_hangs_is_no_failure_of_the_next_generation(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLE_LIMIT_S", 0.1)
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        with away(monkeypatch):
            await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
            saved(saves, run_config.checkpoint.directory, 1)
            await saves.settle()
            assert [type(event) for event in told] == [SaveFailed]
            await saves.begin(Incarnation("7.0", 2), world_size=1, committed_step=-1)
            saved(saves, run_config.checkpoint.directory, 2)
            monkeypatch.setattr(module, "SETTLE_LIMIT_S", 20.0)
            async with asyncio.timeout(10):
                await saves.settle()
            assert [type(event) for event in told] == [SaveFailed, CheckpointCommitted]

    asyncio.run(story())


@pytest.mark.parametrize(("run", "other"), [("lm-0a1b2c", ""), ("lm-999999", "lm-999999")])
def test_another_attempt_that_took_over_ends_this_one(
    run: str, other: str, run_config: RunConfig
) -> None:
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        claim_epoch(run_config.checkpoint.directory, Incarnation("8.0", 1), run)
        saved(saves, run_config.checkpoint.directory, 1)
        await saves.settle()
        (event,) = told
        assert isinstance(event, Superseded)
        assert event.other_run == other
        assert run in event.reason

    asyncio.run(story())


def test_a_beginning_that_was_given_up_does_not_fence_the_next(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, back = threading.Event(), threading.Event()

    def slow(directory: Path, writer: Incarnation, run: str) -> int:
        if writer.generation == 1:
            begun.set()
            back.wait(20)
        return claim_epoch(directory, writer, run)

    monkeypatch.setattr("relight.resilience.supervise.saves.claim_epoch", slow)
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        first = asyncio.create_task(
            saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        )
        await asyncio.to_thread(begun.wait, 20)
        first.cancel()
        second = asyncio.create_task(
            saves.begin(Incarnation("7.0", 2), world_size=1, committed_step=-1)
        )
        await asyncio.sleep(0)
        back.set()
        await second
        saved(saves, run_config.checkpoint.directory, 2)
        await saves.settle()
        assert [type(event) for event in told] == [CheckpointCommitted]

    asyncio.run(story())


def test_a_commit_that_is_overtaken_by_a_later_one_hides_it_not(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that hiccups has the older one tried again."""
    back = threading.Event()
    monkeypatch.setattr(module, "commit", lambda _, step, *rest: back.wait(20) if step == 7 else 0)

    async def story() -> None:
        saves = Saves(run_config, lambda event: None, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        saves.saved(receipt(), {})
        saves.saved(replace(receipt(), step=8), {})
        assert await saves.committed(8, 20)
        back.set()
        await saves.settle()
        assert await saves.committed(8, 0.1)
        assert saves.archiving._newest == 8, "it is what goes to the archive in the end"

    asyncio.run(story())


def test_a_save_that_stays_incomplete_is_forgotten(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rank has failed to save these steps; the run may go on for weeks."""
    monkeypatch.setattr(module, "commit", lambda *_: None)
    by_rank = [
        replace(receipt(), world_size=2, rank=rank, file=f"7.0.g1/shard-0000{rank}.h5")
        for rank in (0, 1)
    ]

    async def story() -> None:
        saves = Saves(run_config, lambda event: None, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=2, committed_step=-1)
        for step in (1, 2, 3, 9):
            early = replace(by_rank[0], step=step)
            saves.saved(early, {"stall_s": 0.1})
        for one in by_rank:  # of step 7
            saves.saved(one, {"stall_s": 0.1})
        assert set(saves._receipts) == set(saves._stalls) == {9}
        await saves.settle()

    asyncio.run(story())
