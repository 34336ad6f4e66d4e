"""The marks of the user and the clock: when they are looked at, and what comes of it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import Event, StopRequested
from relight.resilience.decide.state import Phase, Stop
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Cluster, StopNotice
from relight.resilience.supervise.marks import read_marks
from relight.resilience.supervise.reasons_to_stop import ReasonsToStop


def looked(config: RunConfig, known: StopCause | None, phase: Phase) -> list[StopCause]:
    """What one look reports, ten seconds before the time limit, under a stop that is known."""
    told: list[Event] = []
    cluster = cast(Cluster, SimpleNamespace(end_time=lambda: time.time() + 10.0))
    reasons = ReasonsToStop(
        config, cluster, told.append, lambda: True, lambda: 60.0, lambda notice, name: None
    )
    reasons.read_end_time()
    stop = None if known is None else Stop(cause=known, kill_at=None, evidence="because")
    asyncio.run(reasons.look(read_marks(RunFolder(config.run_dir)), stop, phase))
    return [event.cause for event in told if isinstance(event, StopRequested)]


@pytest.mark.parametrize(
    "known", [None, StopCause.SIGNALLED, StopCause.DEGRADED, StopCause.UNKNOWN]
)
def test_a_stop_that_leaves_the_allocation_does_not_hide_its_end(
    run_config: RunConfig, known: StopCause | None
) -> None:
    assert looked(run_config, known, Phase.STOPPING) == [StopCause.TIME_LIMIT]


@pytest.mark.parametrize("known", [StopCause.HELD, StopCause.PREEMPTED, StopCause.TIME_LIMIT])
def test_who_leaves_it_anyway_is_not_told_again(run_config: RunConfig, known: StopCause) -> None:
    assert looked(run_config, known, Phase.STOPPING) == []


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.MOVING, Phase.ENDED])
def test_who_cannot_leave_is_not_told(run_config: RunConfig, phase: Phase) -> None:
    assert looked(run_config, None, phase) == []


def test_a_hold_counts_while_the_ranks_save_on_a_signal(run_config: RunConfig) -> None:
    held = RunFolder(run_config.run_dir).held
    held.parent.mkdir(parents=True)
    held.touch()
    assert looked(run_config, StopCause.SIGNALLED, Phase.STOPPING) == [StopCause.HELD]


def test_a_signal_to_the_supervisor_is_asked_about_after_one_to_the_ranks(
    run_config: RunConfig,
) -> None:
    """As when a service ends: all processes get it, in any order."""
    told: list[Event] = []
    causes = {False: StopCause.SIGNALLED, True: StopCause.HELD}

    def notice(signal_name: str, *, to_supervisor: bool) -> StopNotice:
        return StopNotice(cause=causes[to_supervisor], kill_at=None, evidence=signal_name)

    cluster = cast(Cluster, SimpleNamespace(stop_notice=notice))
    reasons = ReasonsToStop(
        run_config, cluster, told.append, lambda: True, lambda: 60.0, lambda notice, name: None
    )

    async def both() -> None:
        to_ranks = asyncio.create_task(reasons.ask("SIGTERM", to_supervisor=False))
        await asyncio.sleep(0)  # it is under way
        await reasons.ask("SIGTERM", to_supervisor=True)
        await to_ranks

    asyncio.run(both())
    stops = [event.cause for event in told if isinstance(event, StopRequested)]
    assert stops == [StopCause.SIGNALLED, StopCause.HELD]


def test_no_signal_to_the_supervisor_is_forgotten_while_others_are_asked_about(
    run_config: RunConfig,
) -> None:
    asked: list[str] = []
    follows = {"SIGUSR1": "SIGTERM", "SIGTERM": "SIGXCPU"}

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def stop_notice(name: str, *, to_supervisor: bool) -> StopNotice:
            asked.append(name)
            if name in follows:
                next_one = reasons.ask(follows[name], to_supervisor=True)
                asyncio.run_coroutine_threadsafe(next_one, loop).result(10)
            return StopNotice(cause=StopCause.SIGNALLED, kill_at=None, evidence="x")

        cluster = cast(Cluster, SimpleNamespace(stop_notice=stop_notice))
        reasons = ReasonsToStop(
            run_config, cluster, print, lambda: True, lambda: 60.0, lambda notice, name: None
        )
        await reasons.ask("SIGUSR1", to_supervisor=False)

    asyncio.run(story())
    assert asked == ["SIGUSR1", "SIGTERM", "SIGXCPU"]
