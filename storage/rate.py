"""How fast a folder takes what a save writes: measured, not believed."""

from __future__ import annotations

import mmap
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from .blocks import BLOCK_BYTES
from .output import Output, Run, way_to_write
from .way import WORTH_A_TRIAL_BYTES

_ROUND_BYTES = 256 << 20
_BUDGET_S = 3.0


@dataclass(frozen=True, slots=True)
class Rate:
    """What one process of this machine has written and fsynced, as a shard is written."""

    size_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds


def write_rate(folder: Path, budget_s: float = _BUDGET_S) -> Rate:
    """Writes to an existing folder for about ``budget_s``, and removes it again.

    The bytes are random, so that no file system can make less of them. Raises OSError.
    """
    way = way_to_write(folder, WORTH_A_TRIAL_BYTES)
    path = folder / f".rate-{secrets.token_hex(8)}"
    sample = memoryview(mmap.mmap(-1, BLOCK_BYTES))
    sample[:] = secrets.token_bytes(len(sample))
    path.touch(0o600, exist_ok=False)
    size_bytes = 0
    began = time.monotonic()
    try:
        with Output(path, way) as output:
            while size_bytes == 0 or time.monotonic() - began < budget_s:
                output.reserve(size_bytes + _ROUND_BYTES)
                run = Run(size_bytes, _ROUND_BYTES, lambda start, stop: sample[: stop - start])
                output.write([run])
                os.fsync(output.fd)
                size_bytes += _ROUND_BYTES
        return Rate(size_bytes, time.monotonic() - began)
    finally:
        path.unlink(missing_ok=True)
