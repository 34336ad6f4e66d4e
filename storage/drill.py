"""Re-reads one checkpoint from the disk, at the lowest priority, and says what is wrong with it.

python -m relight.storage.drill DIRECTORY STEP
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from relight.answer import give

from .condition import examine
from .layout import step_dir
from .verify import verify


def drill(directory: Path, step: int) -> str | None:
    """The first damage, empty when all bytes are right; None when the step is not committed.

    Damage is believed when a second look finds it too: a reader may have been what was wrong.
    Raises FormatUnknown for a checkpoint of a later version.
    """
    found = None
    for _ in range(2):
        _forget(directory, step)
        report = verify(directory, step)
        if not report.steps:
            return None
        if report.sound:
            return ""
        first = report.findings[0]
        block = "" if first.block is None else f", block {first.block}"
        found = f"{first.file}: {first.array}{block}: {first.reason}"
    return found


def _forget(directory: Path, step: int) -> None:
    """Lets the kernel drop what it has cached: the disk is to be read, not the memory."""
    for path in _shards(directory, step):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # for `verify` to find
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _shards(directory: Path, step: int) -> Iterator[Path]:
    manifest = examine(directory, step).manifest
    if manifest is not None:
        for receipt in manifest.receipts:
            for file in receipt.files:
                yield step_dir(directory, manifest.step) / file


if __name__ == "__main__":
    os.nice(19)
    give(json.dumps(drill(Path(sys.argv[1]), int(sys.argv[2]))))
