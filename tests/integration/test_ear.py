"""The step that hears of a preemption for a batch script, signalled as Slurm does it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from relight.resilience.supervise import ear
from relight.resilience.supervise.cluster import Allocation, Cluster, Command

LIMIT_S = 60.0
ALLOCATION = Allocation(
    job_id="7", restart_count=0, nodes=("n1",), batch_node="n1", supervisor_host="n1"
)


@pytest.mark.parametrize("first", ["the sleep of the shell", "the shell"])
def test_a_preemption_is_heard_whichever_process_is_signalled_first(
    tmp_path: Path, first: str
) -> None:
    """Only that one is: the other may be gone before its own signal comes."""
    cluster = SimpleNamespace(step_command=lambda request: Command(request.argv, os.environ))

    async def scene() -> None:
        heard = asyncio.Event()
        listening = asyncio.create_task(
            ear.listen(cast(Cluster, cluster), ALLOCATION, tmp_path / "ear.log", heard.set)
        )
        async with asyncio.timeout(LIMIT_S):
            sleep = await _sleep_of_the_shell()
            process = sleep if first == "the sleep of the shell" else sleep.parent()
            assert process is not None
            process.terminate()
            await heard.wait()
        listening.cancel()
        await asyncio.wait([listening])
        with contextlib.suppress(psutil.NoSuchProcess):
            sleep.kill()  # in Slurm it would end with its step

    asyncio.run(scene())


async def _sleep_of_the_shell() -> psutil.Process:
    while True:
        for process in psutil.Process().children(recursive=True):
            if process.name() == "sleep":
                return process
        await asyncio.sleep(0.02)
