"""Processes that are no children of ours, as ``/proc`` shows them (proc_pid_stat(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .activity import children_of

_STARTERS: Final = ("torchrun", "torch.distributed.run")
_NAMED_BY: Final = 4  # words: an interpreter, its flag, and what it runs


class OtherProcess:
    """One of them, by its number and the time of its start."""

    def __init__(self, pid: int, begun: str) -> None:
        self.pid = pid
        self._begun = begun

    @classmethod
    def of(cls, pid: int) -> OtherProcess:
        fields = _stat(pid)
        return cls(pid, fields[19] if fields else "")

    def leader(self) -> OtherProcess:
        """Who leads its session; itself in ours. torchrun gives each rank a session."""
        fields = _stat(self.pid)
        session = int(fields[3]) if fields else self.pid
        return self if session in (self.pid, os.getsid(0)) else OtherProcess.of(session)

    def siblings(self) -> int:
        """How many children its parent has, with itself."""
        fields = _stat(self.pid)
        return len(children_of(int(fields[1]))) if fields else 0

    def look(self) -> tuple[bool, int | None]:
        """Whether it has ended, and its status while nobody has taken that (proc_pid_stat(5))."""
        fields = _stat(self.pid)
        if not fields or fields[19] != self._begun:
            return True, None
        return (True, int(fields[49])) if fields[0] in "ZX" else (False, None)


def start_ranks(pids: Iterable[int], group: int) -> bool:
    """Whether one of them is torchrun, or a rank that was started in this process group.

    What a rank leaves behind, such as a service that outlives it, has a group of its own.
    """
    return any(_is_torchrun(pid) or (_group(pid) == group and _has_a_rank(pid)) for pid in pids)


def _is_torchrun(pid: int) -> bool:
    words = _read(pid, "cmdline").split(b"\0")[:_NAMED_BY]
    return any(Path(os.fsdecode(word)).name in _STARTERS for word in words)


def _has_a_rank(pid: int) -> bool:
    return any(word.startswith(b"RANK=") for word in _read(pid, "environ").split(b"\0"))


def _group(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[2]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields from the state on; empty for a process that is gone."""
    return os.fsdecode(_read(pid, "stat")).rpartition(")")[2].split()


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""
