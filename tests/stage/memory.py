"""A limit of memory that the kernel enforces, on processes that run already."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def limited_memory(pids: Iterable[int], more_bytes: int) -> Iterator[None]:
    """Until the end these processes may get so many bytes more, together, or one is killed.

    That is not the first one.
    """
    old = _ROOT / "memory"
    above = old if old.is_dir() else _ROOT
    limit = "memory.limit_in_bytes" if old.is_dir() else "memory.max"
    try:
        group = Path(tempfile.mkdtemp(prefix="relight-test-", dir=above))
        group.chmod(0o755)  # its agent counts what was killed
        (group / limit).write_text(str(more_bytes))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        for number, pid in enumerate(pids):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                if number > 0:
                    Path(f"/proc/{pid}/oom_score_adj").write_text("900")
                (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        group.rmdir()


def with_its_agent(rank: int) -> list[int]:
    """The process ids of a rank's agent and of all below it."""
    agent = psutil.Process(rank)
    while "relight.resilience.worker.agent" not in agent.cmdline():
        agent = agent.parent() or psutil.Process(0)
    return [agent.pid, *(child.pid for child in agent.children(recursive=True))]
