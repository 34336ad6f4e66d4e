"""A batch script that is warned: which markers say that it has saved, and what they lead to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import Event, RankExited, RanksLingered, StopRequested
from relight.resilience.supervise import own_saves
from relight.resilience.supervise import script as scripts
from relight.resilience.supervise.cluster import Cluster, StopNotice
from relight.resilience.supervise.reasons_to_stop import ReasonsToStop, stop_of
from relight.resilience.supervise.script import Program, Script

PATIENCE_S = 20.0


class Scene:
    """USR1 comes before the time limit; Slurm says why once it is let answer."""

    def __init__(self, config: RunConfig) -> None:
        self.kill_at = self.end_time = time.time() + 1000.0
        self.said: list[Event] = []
        self.answers = threading.Event()
        self.warned: list[asyncio.Task[None]] = []
        cluster = SimpleNamespace(stop_notice=self._notice, end_time=lambda: self.end_time)
        self.reasons = ReasonsToStop(
            config, cast(Cluster, cluster), self.said.append, bool, float, self._warn
        )
        self.told: list[str] = []
        self.program = SimpleNamespace(
            generation=1, signal=lambda name, **_: self.told.append(name), alive={0}
        )
        self.script = Script(config, self.reasons, cast(Program, self.program), self.said.append)

    def _notice(self, name: str, *, to_supervisor: bool) -> StopNotice:
        self.answers.wait(2 * PATIENCE_S)
        if not to_supervisor:
            return StopNotice(cause=StopCause.SIGNALLED, kill_at=None, evidence="it runs on")
        return StopNotice(
            cause=StopCause.TIME_LIMIT, kill_at=self.kill_at, evidence="near", warning=True
        )

    def _warn(self, notice: StopNotice, name: str) -> None:
        self.warned.append(asyncio.create_task(self.script.warned(notice, name)))

    async def hear(self, name: str) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self.script.pass_on(name))
            both.create_task(self.reasons.ask(name, to_supervisor=True))

    async def warned_again(self) -> None:
        """What the script was warned of last has come to its end here."""
        async with asyncio.timeout(PATIENCE_S):
            await self.warned[-1]


@pytest.fixture
def config(run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(scripts, "_TURN_S", 0.05)
    monkeypatch.setattr(scripts, "_SENDING_S", 0.05)
    monkeypatch.setattr(own_saves, "QUIET_S", 0.1)
    checkpoint = replace(run_config.checkpoint, signal="SIGUSR1", done="*.done")
    return replace(run_config, program="script", checkpoint=checkpoint)


def test_a_marker_that_comes_while_slurm_is_asked_why_is_a_new_one(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looked = own_saves.saved_files, threading.Event()

    def seen(config: RunConfig) -> Mapping[str, int]:
        found = look(config)
        looked.set()
        return found

    monkeypatch.setattr(own_saves, "saved_files", seen)

    async def scene() -> list[Event]:
        made = Scene(config)
        hearing = asyncio.create_task(made.hear("SIGUSR1"))
        assert await asyncio.to_thread(looked.wait, PATIENCE_S), "before Slurm has answered"
        (tmp_path / "1.done").touch()
        made.answers.set()
        await hearing
        await made.warned_again()
        return made.said

    stop, lingering = asyncio.run(scene())
    assert isinstance(stop, StopRequested)
    assert isinstance(lingering, RanksLingered)


def test_a_time_limit_that_was_extended_ends_nothing_and_is_warned_of_again(
    config: RunConfig, tmp_path: Path
) -> None:
    async def scene() -> Scene:
        made = Scene(config)
        made.answers.set()
        await made.hear("SIGUSR1")
        made.end_time += 3600.0
        (tmp_path / "1.done").touch()
        await made.warned_again()
        assert made.said == []
        await made.hear("SIGUSR1")
        assert len(made.warned) == 2
        made.warned[-1].cancel()
        return made

    made = asyncio.run(scene())
    exited = RankExited(generation=1, rank=0, node="n1", code=0)
    asyncio.run(made.script.ended(exited))
    assert made.said == [exited], "it has done its work"


def test_a_script_that_has_not_begun_is_not_told_of_a_preemption_but_not_begun(
    config: RunConfig,
) -> None:
    notice = StopNotice(cause=StopCause.PREEMPTED, kill_at=None, evidence="early", warning=True)

    async def scene() -> Scene:
        made = Scene(config)
        made.program.alive = set()
        await made.script.warned(notice, "asked once a step listens")
        return made

    made = asyncio.run(scene())
    assert made.told == []
    assert made.said == [stop_of(notice, "asked once a step listens")]
