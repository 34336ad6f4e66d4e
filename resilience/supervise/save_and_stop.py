"""The emergency save: all ranks save one common step and end, within the time that is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from ..config import RunConfig
from ..decide.actions import SaveAndStop
from ..decide.events import Event, RanksLingered, SaveFailed
from .deadline import Deadline
from .own_saves import OwnSave
from .pace import Pace
from .ranks import Ranks
from .saves import Saves

_LINGER_S: Final = 5.0
_TURN_S: Final = 1.0


async def save_and_stop(
    config: RunConfig,
    order: SaveAndStop,
    kill_at: Callable[[], float | None],
    ranks: Ranks,
    saves: Saves,
    pace: Pace,
    emit: Callable[[Event], None],
) -> None:
    """Reports SaveFailed or RanksLingered; when all goes well RanksStopped is all there is.

    ``kill_at`` may come nearer while the ranks save: a preemption overtakes a time limit.
    """

    def deadline() -> Deadline:
        return Deadline(kill_at(), saves.last_seconds, pace.longest_step_s)

    generation = ranks.generation
    common: int | None = None
    if config.checkpoint.signal and config.program == "ranks" and not saves.speaking:
        lingering = await _save_itself(config, deadline, ranks)
        if lingering and ranks.generation == generation:
            detail = "they were told to save by a signal"
            emit(RanksLingered(generation=generation, ranks=lingering, detail=detail))
        return
    if not saves.speaking:
        # A program without the API may know what to do on TERM; one that has not joined yet ignores
        # it, and has nothing to save.
        ranks.terminate()
        ranks.let_end()
        if (
            await saves.first_word(deadline().left_s(time.time()))
            and ranks.generation == generation
        ):
            reason = "no rank had begun its steps when the stop came"
            emit(SaveFailed(step=None, reason=reason, generation=generation))
            return
    else:
        answer = await _order_stop(order, deadline(), ranks, saves)
        if isinstance(answer, str):
            emit(SaveFailed(step=None, reason=answer, generation=generation))
            return
        common = answer
    ranks.let_end()
    detail = await _time_to_end(common, deadline, ranks, saves)
    if ranks.alive and ranks.generation == generation:
        lingering = tuple(sorted(ranks.alive))
        emit(RanksLingered(generation=generation, ranks=lingering, detail=detail))


async def _save_itself(
    config: RunConfig, deadline: Callable[[], Deadline], ranks: Ranks
) -> tuple[int, ...]:
    """Wait for the files of a program that saves by itself, or its end; the ranks that are left."""
    save, generation = OwnSave(config), ranks.generation
    await save.begin(min(_TURN_S, deadline().left_s(time.time())))
    if ranks.generation != generation:
        return ()  # they have failed meanwhile, and the next ones are not told to end
    ranks.terminate()
    ranks.let_end()
    while deadline().left_s(time.time()) > 0 and ranks.generation == generation and ranks.alive:
        turn_s = min(_TURN_S, deadline().left_s(time.time()))
        await asyncio.sleep(turn_s)
        if await save.is_done(turn_s):
            break
    return tuple(sorted(ranks.alive))


async def _order_stop(
    order: SaveAndStop, deadline: Deadline, ranks: Ranks, saves: Saves
) -> int | str:
    """Tell all ranks to save one step; that step, or why there will be no save."""
    absent = sorted(ranks.alive - saves.steps.keys())
    if absent:
        return f"ranks {absent} have not begun their steps: there is nothing new to save"
    if deadline.left_s(time.time()) <= 0:
        return "no time is left"
    agreement = await saves.agree(ranks.alive, deadline.answer_limit_s(time.time()))
    if agreement.step is None:
        return f"ranks {list(agreement.missing)} did not answer"
    saves.order_stop(agreement, order.reason)
    return agreement.step


async def _time_to_end(
    common: int | None, deadline: Callable[[], Deadline], ranks: Ranks, saves: Saves
) -> str:
    """Wait for as long as ranks may take; why that is over."""
    while (left_s := deadline().left_s(time.time())) > 0:
        turn_s = min(left_s, _TURN_S)
        if common is None:
            await asyncio.sleep(turn_s)
        elif await saves.committed(common, turn_s):
            waited_s = await _time_to_exit(left_s, deadline, ranks)
            return f"step {common} is saved, and {waited_s:.0f} s have passed since"
    return "the time left is over"


async def _time_to_exit(limit_s: float, deadline: Callable[[], Deadline], ranks: Ranks) -> float:
    """Wait for ranks that have saved; for how long.

    Some programs hang at their exit, e.g. in the teardown of a process group. One that has done all
    its steps gets the time that there is: were it ended, another job would begin to do nothing.
    """
    begun_s, waited_s = time.monotonic(), 0.0
    while ranks.alive and waited_s < (limit_s if ranks.have_finished else _LINGER_S):
        left_s = deadline().left_s(time.time())
        if left_s <= 0:
            break
        await asyncio.sleep(min(left_s, _TURN_S))
        waited_s = time.monotonic() - begun_s
    return waited_s
