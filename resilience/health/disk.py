"""Checkpoint directory: it takes a real write, gives the bytes back, and has room.

Which errors speak against the node and which against the run: a read-only, stale or broken
filesystem may be this node's alone (when all nodes say so, the verdict is another one); a full one,
a quota, a directory that is not ours, and a place where nobody can make one, as in /proc, are the
same everywhere, unless another node finds it good. No right to make the directory is held against
the node where a filesystem may not be mounted: the first folder above it that is there is empty, or
the root. Else the run has named a place that is not its own.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from .check import Candidate, Check, Finding
from .result import Outcome

MIB = 1024**2
PROBE_BYTES = MIB

_NODE_ERRORS = frozenset(
    {
        *(errno.EROFS, errno.EUCLEAN),
    }
)
_JOB_ERRORS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM),
        *(errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR),
        errno.ENOENT,
    }
)
# Its server is away: no other node helps when all meet it, and it may come back.
_AWAY = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ENODEV, errno.ENXIO, errno.ETIMEDOUT),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ESHUTDOWN, errno.EREMOTEIO),
    }
)
AWAY_UNIT = "errno of a server that is away"
_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM})


def check_disk(candidate: Candidate) -> Finding:
    """Write, fsync, read back and remove a probe; then look at the free space."""
    directory = candidate.config.checkpoint.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _NO_RIGHT and _may_lack_a_mount(directory):
            return Finding(Outcome.FAIL_NODE, f"cannot make {directory}: {error.strerror}")
        return judge_error(error, f"cannot make {directory}")
    probe = directory / f".relight-preflight-{candidate.config.run_id}-{candidate.node}"
    try:
        same = _survives_a_round_trip(probe)
        free_bytes = _free_bytes(directory)
    except OSError as error:
        return judge_error(error, f"cannot write in {directory}")
    if not same:
        return Finding(Outcome.FAIL_NODE, f"{directory} gave back other bytes than were written")
    return _judge_space(directory, free_bytes, candidate.config.health.min_free_disk_bytes)


def _may_lack_a_mount(directory: Path) -> bool:
    for folder in directory.parents:
        try:
            with os.scandir(folder) as entries:
                return folder == Path(folder.anchor) or next(entries, None) is None
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
    return False


def judge_error(error: OSError, what: str) -> Finding:
    """Whom an error of the filesystem speaks against."""
    evidence = f"{what}: {error.strerror} (errno {error.errno})"
    if error.errno in _AWAY:
        return Finding(Outcome.FAIL_NODE, evidence, float(error.errno), AWAY_UNIT)
    if error.errno in _NODE_ERRORS:
        return Finding(Outcome.FAIL_NODE, evidence)
    if error.errno in _JOB_ERRORS:
        return Finding(Outcome.FAIL_JOB, evidence)
    return Finding(Outcome.UNKNOWN, evidence)


def _judge_space(directory: Path, free_bytes: int, asked_bytes: int) -> Finding:
    return Finding(
        Outcome.FAIL_JOB if free_bytes < asked_bytes else Outcome.PASS,
        f"{directory}: {free_bytes // MIB} MiB free, {asked_bytes // MIB} MiB asked",
        float(free_bytes),
        "bytes",
    )


def _free_bytes(directory: Path) -> int:
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize


def _survives_a_round_trip(probe: Path) -> bool:
    content = os.urandom(PROBE_BYTES)
    # Not exclusive: a probe that was killed may have left its file, which the next one takes over.
    fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, content)
        os.fsync(fd)
        # Ask for the bytes of the disk, not of the page cache.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, PROBE_BYTES + 1, 0) == content
    finally:
        os.close(fd)
        probe.unlink(missing_ok=True)


def _write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


CHECK = Check(
    name="disk",
    reads="the checkpoint directory, by a write of 1 MiB, fsync, read and unlink",
    threshold="no error, the same bytes, at least health.min_free_disk free",
    worst=Outcome.FAIL_JOB,
    typical_s=0.1,
    timeout_s=20.0,
    run=check_disk,
)
