"""Hears of a preemption in time for a batch script: Slurm tells steps first, a batch script last.

A step of one process, which does nothing but end when it is sent SIGTERM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from . import processes
from .cluster import Allocation, Cluster, StepRequest

_HEARD: Final = 75
# Slurm 22.05 (proctrack/linuxproc) signals children before their parent: the sleep that ended by
# SIGTERM (128 + 15) is the word, too, for the shell may be gone before its own signal comes.
_LISTEN: Final = (
    f"trap 'exit {_HEARD}' TERM; sleep infinity & wait $!; [ $? = 143 ] && exit {_HEARD}"
)
_PAUSE_S: Final = 30.0  # before listening again, where the step did not start, or the job goes on


async def listen(
    cluster: Cluster, allocation: Allocation, log: Path, on_term: Callable[[], None]
) -> None:
    """Calls ``on_term`` each time; ends when it is cancelled."""
    request = StepRequest(
        name="ear",
        nodes=(allocation.batch_node,),
        tasks_per_node=1,
        cpus_per_task=1,
        argv=("/bin/sh", "-c", _LISTEN),
        env={},
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    while True:
        process = await processes.start_tied(cluster.step_command(request), log)
        try:
            if await process.wait() == _HEARD:
                on_term()
        finally:
            await processes.end(process)
        await asyncio.sleep(_PAUSE_S)
