"""The step that hears of a preemption for a batch script, signalled as Slurm does it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from relight.resilience.supervise import ear, processes
from relight.resilience.supervise.cluster import Allocation, Cluster, Command, StepRequest

LIMIT_S = 60.0
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=("n1",), batch_node="n1", supervisor_host="n1"
)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear, "_PAUSE_S", 0.05)


@pytest.mark.parametrize("first", ["the sleep of the shell", "the shell"])
def test_a_preemption_is_heard_whichever_process_is_signalled_first(
    tmp_path: Path, first: str
) -> None:
    """Only that one is: the other may be gone before its own signal comes."""
    cluster = SimpleNamespace(step_command=lambda request: Command(request.argv, os.environ))

    async def scene() -> None:
        asked: asyncio.Queue[str] = asyncio.Queue()
        listening = asyncio.create_task(
            ear.listen(cast(Cluster, cluster), ALLOCATION, tmp_path / "ear.log", asked.put_nowait)
        )
        sleeps: list[psutil.Process] = []
        async with asyncio.timeout(LIMIT_S):
            for _ in range(2):  # it listens again, and asks for what came in between
                assert await asked.get() == "asked once a step listens"
                sleeps.append(await _sleep_of_the_shell(sleeps))
                process = sleeps[-1] if first == "the sleep of the shell" else sleeps[-1].parent()
                assert process is not None
                process.terminate()
                assert await asked.get() == "SIGTERM to steps"
        listening.cancel()
        await asyncio.wait([listening])
        for sleep in sleeps:
            with contextlib.suppress(psutil.NoSuchProcess):
                sleep.kill()  # in Slurm it would end with its step

    asyncio.run(scene())


def test_a_step_that_does_not_start_is_tried_again(tmp_path: Path) -> None:
    """First the file system is away, then the step fails, then it is there."""
    tries = iter((None, "false", "echo; exec sleep infinity"))

    def step(request: StepRequest) -> Command:
        if (line := next(tries)) is None:
            raise OSError(errno.ESTALE, "away")
        return Command(("sh", "-c", line), os.environ)

    async def scene() -> None:
        asked: asyncio.Queue[str] = asyncio.Queue()
        cluster = cast(Cluster, SimpleNamespace(step_command=step))
        listening = asyncio.create_task(
            ear.listen(cluster, ALLOCATION, tmp_path / "ear.log", asked.put_nowait)
        )
        async with asyncio.timeout(LIMIT_S):
            assert await asked.get() == "asked once a step listens"
        listening.cancel()
        await asyncio.wait([listening])

    asyncio.run(scene())


def test_what_a_cancelled_task_ends_does_not_stay() -> None:
    async def scene() -> int | None:
        process = await processes.start(Command(("sleep", "infinity"), os.environ), None)

        async def hold() -> None:
            try:
                await process.wait()
            finally:
                await processes.end(process, patience_s=0.1)

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        holding.cancel()
        await asyncio.wait([holding])
        return process.returncode

    assert asyncio.run(scene()) == -signal.SIGTERM


async def _sleep_of_the_shell(others: Collection[psutil.Process]) -> psutil.Process:
    while True:
        for process in psutil.Process().children(recursive=True):
            if process.name() == "sleep" and process not in others:
                return process
        await asyncio.sleep(0.02)
