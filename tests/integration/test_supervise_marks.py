"""The run folder's file system stalls or fails: the supervisor's loop goes on."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import Event, StopRequested
from relight.resilience.decide.state import Phase
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise import requests as module
from relight.resilience.supervise.look import Look
from relight.resilience.supervise.marks import Marks, look_for_cancel, read_marks
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.requests import Requests, read_answer, write_request
from relight.resilience.supervise.saves import Saves


@pytest.fixture
def folder(run_config: RunConfig) -> RunFolder:
    run_config.run_dir.mkdir()
    return RunFolder(run_config.run_dir)


def test_marks_are_what_people_have_left(folder: RunFolder) -> None:
    assert read_marks(folder) == Marks()
    write_request(folder, "restart")
    folder.held.touch()
    folder.cancelled.touch()
    assert read_marks(folder) == Marks(
        cancelled="relight cancel was called", held=True, wanted=frozenset({"restart"})
    )


def test_a_file_system_that_fails_says_nothing(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path, *_: object, **__: object) -> object:
        raise OSError(errno.ESTALE, "stale", str(path))

    async def story() -> None:
        look = Look(lambda: read_marks(folder))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", stale)
            patch.setattr(Path, "read_text", stale)
            assert await look.now(10.0) is None
            assert await look_for_cancel(folder) is None
        assert await look.now(10.0) == Marks()

    asyncio.run(story())


def test_while_a_look_hangs_there_is_no_other_one() -> None:
    back, looks = threading.Event(), []

    def hang() -> str:
        looks.append(1)
        back.wait(20)
        return "seen"

    async def story() -> None:
        look = Look(hang)
        try:
            assert [await look.now(0.01) for _ in range(3)] == [None] * 3
            assert len(looks) == 1
            both = asyncio.gather(look.now(20.0), look.now(20.0))  # wait for one answer
            await asyncio.sleep(0)
        finally:
            back.set()
        assert list(await both) == ["seen", "seen"]
        assert len(looks) == 1

    asyncio.run(story())


class SomeRanks:
    """Ranks that are told a signal, and are started again by it when they shall be."""

    def __init__(self, *, again: bool) -> None:
        self.generation = 1
        self._again = again

    def signal(self, name: str) -> None:
        self.generation += self._again


@pytest.mark.parametrize("again", [False, True], ids=["silent", "started again"])
def test_a_program_that_never_saves_is_not_waited_for_for_ever(
    run_config: RunConfig, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    if not again:
        monkeypatch.setattr(module, "OWN_SAVE_LIMIT_S", 0.05)
    checkpoint = replace(run_config.checkpoint, signal="SIGUSR1", done="*.done")
    config = replace(run_config, checkpoint=checkpoint)
    told: list[Event] = []
    request = write_request(folder, "checkpoint")

    async def story() -> None:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[object, object, None]) -> None:
            tasks.append(asyncio.create_task(work))

        saves = Saves(config, told.append, lambda message: None)
        ranks = cast("Ranks", SomeRanks(again=again))
        requests = Requests(config, ranks, saves, told.append, spawn)
        for _ in range(2):  # seen twice, taken once
            requests.look(Phase.RUNNING, read_marks(folder).wanted)
        (task,) = tasks
        async with asyncio.timeout(20):
            await task

    asyncio.run(story())
    answer = read_answer(folder, "checkpoint", request)
    assert answer is not None
    assert answer.refused is not None
    assert ("started again" in answer.refused) == again


def test_a_restart_is_asked_for_once(run_config: RunConfig, folder: RunFolder) -> None:
    told: list[Event] = []
    request = write_request(folder, "restart")

    async def story() -> None:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[object, object, None]) -> None:
            tasks.append(asyncio.create_task(work))

        saves = Saves(run_config, told.append, lambda message: None)
        requests = Requests(run_config, cast("Ranks", None), saves, told.append, spawn)
        wanted = read_marks(folder).wanted
        requests.look(Phase.RUNNING, wanted)
        await tasks.pop()
        requests.look(Phase.RUNNING, wanted)  # seen before it was taken
        await tasks.pop()

    asyncio.run(story())
    (stop,) = told
    assert isinstance(stop, StopRequested)
    assert stop.cause is StopCause.SIGNALLED
    assert read_answer(folder, "restart", request) is not None
