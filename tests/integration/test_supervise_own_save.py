"""The end of programs that save by themselves: when their files say that they have."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import SaveAndStop
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import Event, RanksLingered
from relight.resilience.supervise import own_saves
from relight.resilience.supervise import save_and_stop as saving
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.saves import Saves

LATER_S = 0.4  # after it the slower of two ranks has its file


class TwoRanks:
    """Each writes a file of its own when told to save; then they end, or they do not."""

    speaking = False
    last_seconds = None
    longest_step_s = 0.0
    generation = 1

    def __init__(self, folder: Path, *, end: bool) -> None:
        self.alive = {0: "n1", 1: "n1"}
        self.told = 0.0
        self._folder = folder
        self._end = end

    def terminate(self) -> None:
        self.told = time.monotonic()
        self._saving = asyncio.create_task(self._save())

    def let_end(self) -> None:
        pass

    async def _save(self) -> None:
        for rank in (0, 1):
            await asyncio.sleep(LATER_S * rank)
            (self._folder / f"{rank}.done").touch()
            if self._end:
                del self.alive[rank]


@pytest.fixture
def config(run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(saving, "_TURN_S", 0.05)
    monkeypatch.setattr(own_saves, "QUIET_S", 2.5 * LATER_S)
    checkpoint = replace(run_config.checkpoint, signal="USR1", done="*.done")
    return replace(run_config, checkpoint=checkpoint)


def stop(config: RunConfig, ranks: TwoRanks, limit_s: float) -> list[Event]:
    said: list[Event] = []
    kill_at = time.time() + limit_s
    order = SaveAndStop(cause=StopCause.PREEMPTED, kill_at=kill_at, reason="x")
    parts = (cast(Ranks, ranks), cast(Saves, ranks), cast(Pace, ranks))
    asyncio.run(saving.save_and_stop(config, order, lambda: kill_at, *parts, said.append))
    return said


def test_the_first_file_is_not_the_end_of_the_other_rank(config: RunConfig, tmp_path: Path) -> None:
    assert stop(config, TwoRanks(tmp_path, end=True), 20.0) == []
    assert {path.name for path in tmp_path.glob("*.done")} == {"0.done", "1.done"}


def test_ranks_that_stay_when_all_is_saved_are_ended(config: RunConfig, tmp_path: Path) -> None:
    begun = time.monotonic()
    (lingering,) = stop(config, TwoRanks(tmp_path, end=False), 20.0)
    assert isinstance(lingering, RanksLingered)
    assert lingering.ranks == (0, 1)
    assert 3.0 * LATER_S < time.monotonic() - begun < 10.0


def test_a_file_system_that_does_not_answer_delays_neither_word_nor_end(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    asked = []

    def hang(_: RunConfig) -> Mapping[str, int]:
        asked.append(1)
        back.wait(20.0)
        return {}

    monkeypatch.setattr(own_saves, "saved_files", hang)
    ranks = TwoRanks(tmp_path, end=False)
    begun = time.monotonic()
    release = threading.Timer(3.0, back.set)  # the loop's end waits for its threads
    release.start()
    (lingering,) = stop(config, ranks, 2.0)
    release.join()
    assert isinstance(lingering, RanksLingered)
    assert ranks.told - begun < 3.0
    assert len(asked) == 1


def test_ranks_that_start_meanwhile_are_not_told_to_end(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = TwoRanks(tmp_path, end=False)

    def look(_: RunConfig) -> Mapping[str, int]:
        ranks.generation += 1
        return {}

    monkeypatch.setattr(own_saves, "saved_files", look)
    assert stop(config, ranks, 20.0) == []
    assert ranks.told == 0.0
