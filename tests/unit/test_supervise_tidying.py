"""Old checkpoints are deleted by one call at a time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from relight.resilience.supervise.commits import Claim
from relight.resilience.supervise.tidying import Tidying
from relight.storage.layout import Incarnation


def claim(epoch: int) -> Claim:
    return Claim(Path("checkpoints"), Incarnation("1.0", 1), epoch)


def test_calls_do_not_overlap_and_only_the_newest_that_waits_is_made() -> None:
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()
    made: list[int] = []

    def tidy(claim: Claim) -> None:
        made.append(claim.epoch)
        began.set()
        assert go_on.wait(10)
        if claim.epoch == 3:
            done.set()

    async def ask() -> None:
        tidying = Tidying(tidy)
        tidying.ask(claim(1))
        assert await asyncio.to_thread(began.wait, 10)
        tidying.ask(claim(2))
        tidying.ask(claim(3))
        assert made == [1]
        go_on.set()
        assert await asyncio.to_thread(done.wait, 10)

    asyncio.run(ask())
    assert made == [1, 3]
