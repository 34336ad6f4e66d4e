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
_HOSTS_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux


def remove_leftovers(
    since: float, folder: Path = _SHM, proc: Path = _PROC, *, limit_s: float = _LIMIT_S
) -> None:
    """Removes what is ours, has such a name, has changed ``since`` then (of the epoch), and is used
    by no process of ours that lives. Where not all of these can be looked into, nothing is.

    The maps of a process that hangs in the kernel cannot be read before it goes on: whoever calls
    waits for ``limit_s`` at most, and the rest is done aside.
    """
    removal = threading.Thread(target=_remove, args=(since, folder, proc), daemon=True)
    removal.start()
    removal.join(limit_s)


def _remove(since: float, folder: Path, proc: Path) -> None:
    found = set(_of_ours(since, folder))
    if not found or not _all_are_seen(proc):  # the look at all processes is not for free
        return
    try:
        used = _used(folder, proc)
    except OSError:  # what cannot be seen may be in use
        return
    for path in found - used:
        with contextlib.suppress(FileNotFoundError):  # another agent was faster
            path.unlink()


def _all_are_seen(proc: Path) -> bool:
    """Not so in a PID namespace of our own, nor where ``hidepid`` hides those of others."""
    try:
        hosts = str((proc / "self" / "ns" / "pid").readlink()) == _HOSTS_NAMESPACE
    except OSError:
        return False
    return hosts and (proc / "1").exists()


def _of_ours(since: float, folder: Path) -> Iterator[Path]:
    for name in _NAMES:
        for path in folder.glob(name):
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if found.st_uid == os.getuid() and found.st_ctime >= since:
                    yield path


def _used(folder: Path, proc: Path) -> set[Path]:
    begin = f"{folder}/"
    return {Path(file) for file in _files_of_processes(proc) if file.startswith(begin)}


def _files_of_processes(proc: Path) -> Iterable[str]:
    """What they have open, and what they have mapped.

    Raises:
        OSError: one of ours lets nobody look, as by PR_SET_DUMPABLE.
    """
    for process in proc.glob("[0-9]*"):
        if process.name == "1":
            continue  # init is no program of a job, and may hide from root, too
        try:
            yield from _files(process)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except OSError:
            if _is_ours(process):
                raise


def _files(process: Path) -> Iterator[str]:
    for line in (process / "maps").read_text().splitlines():
        yield line.partition("/")[1] + line.partition("/")[2]
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield str(descriptor.readlink())


def _is_ours(process: Path) -> bool:
    """By what everybody may read: the folder of one that lets nobody look is root's. A zombie has
    no files any more, unless its other threads live."""
    try:
        lines = (process / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    status = {name: text.split() for name, _, text in (line.partition(":") for line in lines)}
    if status.get("State", [])[:1] == ["Z"] and status.get("Threads") in (["0"], ["1"]):
        return False
    return str(os.getuid()) in status.get("Uid", [])
