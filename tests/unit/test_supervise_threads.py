"""The threads of the event loop at its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from relight.resilience.supervise import threads
from relight.resilience.supervise.threads import Threads


def test_a_call_that_hangs_does_not_keep_the_loop_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_PATIENCE_S", 0.05)
    back, done = threading.Event(), list[str]()

    def hang() -> None:
        back.wait(60)
        done.append("what hung")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Threads())
        loop.run_in_executor(None, hang)

    asyncio.run(story())
    assert done == []
    back.set()


def test_what_comes_to_its_end_is_waited_for() -> None:
    begun, done = threading.Event(), list[str]()

    def write() -> None:
        begun.set()
        threading.Event().wait(0.05)
        done.append("written")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Threads())
        loop.run_in_executor(None, write)

    asyncio.run(story())
    assert begun.is_set()
    assert done == ["written"]
