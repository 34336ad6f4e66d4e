"""Whether the GPUs of this job have given back what ended programs had of their memory.

``python -P -m relight.resilience.health.gpu.given_back SECONDS GPUS`` waits for it so long, and
prints what is still held then; nothing when all is free, or when nobody can tell. ``GPUS`` is how
many the run asks for on a node. A driver that hangs holds this process, not the agent that asks.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from relight.answer import give
from relight.counted import counted

from .driver import open_driver
from .occupied import MEMORY, is_given
from .present import given_gpus
from .reading import Driver, DriverFault, Gpu, GpuLost, NoDriver, Reading

_POLL_S: Final = 0.1


def still_held(driver: Driver, environ: Mapping[str, str], limit_s: float) -> str:
    """What the GPUs given to this job hold after ``limit_s``, "" as soon as they are free."""
    give_up_at = time.monotonic() + limit_s
    while True:
        told = {gpu.name: _held(gpu) for gpu in driver.gpus() if is_given(gpu.name, environ)}
        held = [f"{name}: {what}" for name, what in told.items() if what]
        if not held:
            return ""
        if time.monotonic() >= give_up_at:
            return f"{'; '.join(held)}, {limit_s:.0f} s after the last ranks have ended"
        time.sleep(_POLL_S)


def _held(gpu: Gpu) -> str:
    """Of a board that is split (MIG), parts belong to others: nobody can tell."""
    used_bytes = gpu.read(Reading.MEMORY_USED)
    if used_bytes is None or gpu.read(Reading.MIG_MODE):
        return ""
    processes = gpu.read(Reading.PROCESSES) or 0
    if used_bytes <= MEMORY.default and not processes:
        return ""
    return f"{used_bytes // 1024**2} MiB in use, {counted(processes, 'process')}"


def main(limit_s: float, gpus: int) -> None:
    if not gpus and not given_gpus(os.environ):
        return
    with contextlib.suppress(NoDriver, GpuLost, DriverFault):  # the health checks tell these
        give(still_held(open_driver(), os.environ, limit_s))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
