"""A user's own folder in a ledger, used by descriptor: in a shared folder a name proves nothing.

Whoever came first may have put a link or a folder of theirs where ours is to be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from relight.storage.durable import fsync_dir, make_dirs

_RECORD: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.[0-9a-f]{16}\.json"
IS_RECORD: Final = re.compile(_RECORD)
# Two dots and two tokens were the names of earlier releases.
IS_LEFTOVER: Final = re.compile(rf"\.{{1,2}}{_RECORD}(\.[0-9a-f]{{16}}){{1,2}}")
_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@contextlib.contextmanager
def own_folder(root: Path, mode: int) -> Iterator[int]:
    """A descriptor of ``root/<uid>``, which is made with this mode if it is absent.

    Raises:
        OSError: it cannot be made, is a link, or is not this user's alone to write.
    """
    own = root / str(os.getuid())
    if not root.is_dir():
        make_dirs(root)
    with contextlib.suppress(FileExistsError):
        own.mkdir(mode)
        fsync_dir(root)
    _insist(own, own.lstat())
    fd = os.open(own, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _insist(own, os.fstat(fd))  # it may have been exchanged
        os.fchmod(fd, mode)  # whatever the umask says
        yield fd
    finally:
        os.close(fd)


def _insist(own: Path, status: os.stat_result) -> None:
    if not is_of(status, os.getuid()):
        fault = f"{own} is no folder that is yours and only yours to write"
        raise PermissionError(errno.EPERM, fault)


def is_of(status: os.stat_result, uid: int) -> bool:
    """Whether this is a folder in which only that user can write."""
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == uid
    return own and not status.st_mode & _BY_OTHERS


def write(folder: int, name: str, data: bytes, mode: int) -> float:
    """Replaces a file, which appears whole and with this mode; its time by the filesystem's clock.

    Raises:
        OSError: it could not be written, and the earlier one is still there.
    """
    ready = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(ready, flags, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, mode)  # before others can see it by its name
        os.fsync(fd)
        written = os.fstat(fd).st_mtime
        os.rename(ready, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(ready, dir_fd=folder)
        raise
    finally:
        os.close(fd)
    os.fsync(folder)
    return written


def times(folder: int) -> Iterator[tuple[str, float]]:
    """Each name in the folder, and when its file was written."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False).st_mtime


def remove(folder: int, name: str, written: float) -> None:
    """Removes a file, unless another one has taken its name since it was written."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime == written:
            os.unlink(name, dir_fd=folder)


def read(name: str, uid: int, most_bytes: int, folder: int) -> bytes:
    """The beginning of a file of this user.

    Raises:
        OSError: it cannot be read, or is no regular file of this user.
    """
    # Anything may lie in a shared folder: no link is followed and no pipe is waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise PermissionError(errno.EPERM, "not a file of that user")
        return os.read(fd, most_bytes)
    finally:
        os.close(fd)
