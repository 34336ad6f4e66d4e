"""How long ranks that have saved may take to end."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import SaveAndStop
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import Event, RanksLingered
from relight.resilience.supervise import save_and_stop as saving
from relight.resilience.supervise.common_step import CommonStep
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.saves import Saves

LINGER_S = 0.1
EXIT_S = 8 * LINGER_S


class Rank:
    """Has saved step 40; it ends a good while after that, if it is let, or never."""

    speaking = alive = frozenset({0})
    steps = {0: 40}  # noqa: RUF012  # as Saves has it
    generation = 1
    last_seconds = None
    longest_step_s = 0.0

    def __init__(self, *, have_finished: bool, ends: bool) -> None:
        self.have_finished = have_finished
        self._ends = ends

    async def agree(self, ranks: frozenset[int], limit_s: float) -> CommonStep:
        return cast(CommonStep, SimpleNamespace(step=40))

    def order_stop(self, agreement: CommonStep, reason: str) -> None: ...

    def let_end(self) -> None: ...

    async def committed(self, step: int, limit_s: float) -> bool:
        if self._ends:
            asyncio.get_running_loop().call_later(EXIT_S, self._end)
        return True

    def _end(self) -> None:
        self.alive = frozenset()


def stop(config: RunConfig, rank: Rank, limit_s: float) -> list[Event]:
    said: list[Event] = []
    kill_at = time.time() + limit_s
    order = SaveAndStop(cause=StopCause.TIME_LIMIT, kill_at=kill_at, reason="x")
    parts = (cast(Ranks, rank), cast(Saves, rank), cast(Pace, rank))
    asyncio.run(saving.save_and_stop(config, order, lambda: kill_at, *parts, said.append))
    return said


def test_a_program_that_has_done_all_its_steps_may_end_by_itself(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it ended, the run would go on in another job, which has nothing to do."""
    monkeypatch.setattr(saving, "_LINGER_S", LINGER_S)
    monkeypatch.setattr(saving, "_TURN_S", LINGER_S / 5)
    assert stop(run_config, Rank(have_finished=True, ends=True), 60.0) == []
    (ended,) = stop(run_config, Rank(have_finished=True, ends=False), 2 * LINGER_S)
    assert isinstance(ended, RanksLingered), "there was no time left"
    (ended,) = stop(run_config, Rank(have_finished=False, ends=False), 60.0)
    assert isinstance(ended, RanksLingered)
    assert ended.ranks == (0,)
