"""Slurm's answer about the user's jobs, shared by all processes of the user on this machine.

Ten terminals with ``relight status --watch`` are one question in 10 s, not ten. Whoever finds the
answer too old asks while the others wait for the lock, and read what came.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from .clusters.slurm.parse import JobState, QueuedJob
from .runs import runs_dir

REST_S: Final = 10.0  # squeue(1) asks for no tight polling
_LOCK_LIMIT_S: Final = 15.0  # longer than a question takes: whoever holds it then is stopped
_TICK_S: Final = 0.05
_MOST_BYTES: Final = 64 * 1024**2
_CLUSTER: Final = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True, slots=True)
class Answer:
    """``jobs`` is None when Slurm did not say; it was asked at ``asked`` (Unix seconds)."""

    asked: float
    jobs: Sequence[QueuedJob] | None

    def is_fresh(self, now: float) -> bool:
        return 0.0 <= now - self.asked < REST_S


def answer_file(env: Mapping[str, str]) -> Path:
    """One for each machine and Slurm: a home may be shared by the login nodes of two clusters."""
    source = "\0".join([socket.gethostname(), *(env.get(name, "") for name in _CLUSTER)])
    return runs_dir().parent / f"queue-{sha256(source.encode()).hexdigest()[:12]}.json"


def shared_answer(
    path: Path, ask: Callable[[], Answer], clock: Callable[[], float] = time.time
) -> Answer:
    """The last answer, or a new one when that is too old. Where no file can be shared, as in a home
    that is not there, everybody asks."""
    try:
        with _locked(path) as fd:
            known = _read(fd)
            if known is not None and known.is_fresh(clock()):
                return known
            found = ask()
            with suppress(OSError):  # a full disk: the next one asks again
                _write(fd, found)
            return found
    except OSError:
        return ask()


def forget_answer() -> None:
    """What somebody has just changed in the queue is to be seen at once."""
    with suppress(OSError):
        answer_file(os.environ).unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        deadline = time.monotonic() + _LOCK_LIMIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_TICK_S)
        yield fd
    finally:
        os.close(fd)


def _read(fd: int) -> Answer | None:
    try:
        raw = json.loads(os.pread(fd, _MOST_BYTES, 0))
        jobs = raw["jobs"]
        if jobs is not None:
            jobs = [QueuedJob(str(i), JobState(s), str(r), t, str(c)) for i, s, r, t, c in jobs]
        return Answer(float(raw["asked"]), jobs)
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # torn, or foreign
        return None


def _write(fd: int, answer: Answer) -> None:
    jobs = None if answer.jobs is None else [astuple(job) for job in answer.jobs]
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"asked": answer.asked, "jobs": jobs}).encode(), 0)
