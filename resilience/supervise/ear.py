"""Hears of a preemption in time for a batch script: Slurm tells steps first, a batch script last.

A step of one process, which does nothing but end when it is sent SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from . import processes
from .cluster import Allocation, Cluster, StepRequest

_log: Final = logging.getLogger(__name__)
# What a shell says of a child that SIGTERM has ended, and srun of a task: whichever process of the
# step is signalled first (22.05 with proctrack/linuxproc: children), and be it before the trap.
_HEARD: Final = 128 + signal.SIGTERM
_LISTEN: Final = f"trap 'exit {_HEARD}' TERM; echo; sleep infinity & wait $!"
_PAUSE_S: Final = 1.0  # before listening again, doubled where the step does not stay
_LONGEST_PAUSE_S: Final = 30.0


async def listen(
    cluster: Cluster, allocation: Allocation, log: Path, ask: Callable[[str], None]
) -> None:
    """Calls ``ask`` with the occasion when it has heard something, and when it may have missed it:
    before a step listened. Ends when it is cancelled."""
    pause_s = _PAUSE_S
    while True:
        begun = time.monotonic()
        try:
            await _listen_once(cluster, allocation, log, ask)
        except OSError as error:
            _log.warning("no step listens for a preemption for now: %s", error)
        stayed = time.monotonic() - begun > _LONGEST_PAUSE_S
        pause_s = _PAUSE_S if stayed else min(2 * pause_s, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


async def _listen_once(
    cluster: Cluster, allocation: Allocation, log: Path, ask: Callable[[str], None]
) -> None:
    request = StepRequest(
        name="ear",
        nodes=(allocation.batch_node,),
        tasks_per_node=1,
        cpus_per_task=1,
        argv=("/bin/sh", "-c", _LISTEN),
        env={},
    )
    command = await asyncio.to_thread(cluster.step_command, request)
    loop, spoke = asyncio.get_running_loop(), asyncio.Event()
    reading, writing = os.pipe()

    def hear() -> None:
        loop.remove_reader(reading)
        spoke.set()

    loop.add_reader(reading, hear)
    try:
        process = await processes.start_tied(command, log, stdout=writing)
        await _attend(process, spoke, ask)
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)


async def _attend(
    process: asyncio.subprocess.Process, spoke: asyncio.Event, ask: Callable[[str], None]
) -> None:
    """To the end of the step; its first word says that it listens."""
    ended, listens = asyncio.create_task(process.wait()), asyncio.create_task(spoke.wait())
    first = partial(
        asyncio.wait, {ended, listens}, timeout=_LONGEST_PAUSE_S, return_when=FIRST_COMPLETED
    )
    try:
        while not (await first())[0]:
            ask("asked while no step listens")
        if spoke.is_set():
            ask("asked once a step listens")
        if await ended == _HEARD:
            ask("SIGTERM to steps")
    finally:
        ended.cancel()
        listens.cancel()
        if process.returncode is None:
            process.terminate()  # it would listen for ever
        await processes.end(process)
