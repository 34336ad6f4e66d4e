"""An example with a fault in it: ``python faulty.py FAULT RANK STEP MARKER SCRIPT ARGUMENTS...``.

The rank, or each of "all", does to itself what the fault says, before that step and once for each
marker; "always" as the marker means each time. All else is the example's own.
"""

from __future__ import annotations

import ctypes
import math
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Never

import relight
from relight.storage.progress import Progress, unseen
from relight.storage.snapshot import Snapshot
from relight.storage.writer_process import Writer

MIB = 1024**2

diverged: list[float] = []


def crash(_marker: Path) -> None:
    ctypes.string_at(0)


def run_out_of_memory(marker: Path) -> Never:
    """Says so in a file beside the marker, and takes more once another one says that it may."""
    marker.with_suffix(".begun").touch()
    while not marker.with_suffix(".limited").exists():
        time.sleep(0.05)
    taken = [b"x" * MIB * count for count in range(1, 24)]
    raise AssertionError(f"nobody minds {len(taken)} pieces")


def wait(marker: Path) -> None:
    """Until there is a file beside the marker, which says that it has come so far."""
    while not marker.with_suffix(".go").exists():
        time.sleep(0.02)


def diverge(_marker: Path) -> None:
    diverged.append(math.nan)  # from now on the loss is that


def make_a_mistake(_marker: Path) -> None:
    dict[str, int]()["no such key"]


def never_finish_a_save(marker: Path) -> None:
    """The next save begins, says so in a file beside the marker, and stays where it is."""
    begun = marker.with_suffix(".begun")

    def write(self: Writer, snapshot: Snapshot, directory: Path, shown: Progress = unseen) -> Never:
        begun.touch()
        while True:
            time.sleep(60)

    Writer.write = write  # type: ignore[method-assign]


FAULTS: Mapping[str, Callable[[Path], None]] = {
    "crash": crash,
    "memory": run_out_of_memory,
    "wait": wait,
    "nan": diverge,
    "mistake": make_a_mistake,
    "save": never_finish_a_save,
}


def main() -> None:
    fault, rank, at, marker, script, *arguments = sys.argv[1:]
    undisturbed = relight.Run.steps

    def steps(self: relight.Run, total: int) -> Iterator[int]:
        for step in undisturbed(self, total):
            if rank in (str(self.rank), "all") and step == int(at) and _first_time(marker):
                FAULTS[fault](Path(marker))
            if fault == "nan":
                self.log(loss=diverged[0] if diverged else 1.0)
            yield step

    relight.Run.steps = steps  # type: ignore[method-assign]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def _first_time(marker: str) -> bool:
    if marker == "always":
        return True
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main()
