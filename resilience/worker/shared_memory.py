"""Shared memory that a killed program has left in ``/dev/shm``, where it takes memory for ever.

Python and NCCL remove theirs at their end, which a killed one never comes to.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# multiprocessing.shared_memory and its locks, torch's tensors, NCCL's buffers. Nothing else is
# touched: a file may be there on purpose.
_NAMES: Final = ("psm_*", "sem.mp-*", "torch_*", "nccl-*")
_SHM: Final = Path("/dev/shm")
_PROC: Final = Path("/proc")
_LIMIT_S: Final = 1.0


def remove_leftovers(folder: Path = _SHM, proc: Path = _PROC, *, limit_s: float = _LIMIT_S) -> None:
    """Removes what is ours, has such a name, and is used by no process of ours that lives.

    The maps of a process that hangs in the kernel cannot be read before it goes on: whoever calls
    waits for ``limit_s`` at most, and the rest is done aside.
    """
    removal = threading.Thread(target=_remove, args=(folder, proc), daemon=True)
    removal.start()
    removal.join(limit_s)


def _remove(folder: Path, proc: Path) -> None:
    found = set(_of_ours(folder))
    if found:  # the look at all processes is not for free
        for path in found - _used(folder, proc):
            with contextlib.suppress(FileNotFoundError):  # another agent was faster
                path.unlink()


def _of_ours(folder: Path) -> Iterator[Path]:
    for name in _NAMES:
        for path in folder.glob(name):
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_uid == os.getuid():
                    yield path


def _used(folder: Path, proc: Path) -> set[Path]:
    begin = f"{folder}/"
    return {Path(file) for file in _files_of_processes(proc) if file.startswith(begin)}


def _files_of_processes(proc: Path) -> Iterable[str]:
    """What they have open, and what they have mapped."""
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for line in (process / "maps").read_text().splitlines():
                yield line.partition("/")[1] + line.partition("/")[2]
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    yield str(descriptor.readlink())
