"""Files and folders that are still there after a power cut, and appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def fsync_dir(folder: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dirs(folder: Path, inside: Path | None = None) -> None:
    """Creates a folder with its parents; every folder that gained a name is fsynced.

    With `inside` that one has to be there: it may be, or lie in, a mount that is missing.

    The folder itself is fsynced in its parent even if it exists: whoever made it a moment ago may
    not have come that far.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    if inside is not None and inside in missing:
        with suppress(OSError):
            list(inside.parent.iterdir())  # a network file system asks anew: it may be just made
        inside.stat()  # which says why it is not there
    for level in reversed(missing):
        level.mkdir(exist_ok=True)
        fsync_dir(level.parent)


def publish(path: Path, data: bytes) -> None:
    """Writes a file that one writer owns, replacing an earlier one. Raises OSError."""
    temporary = _write_temporary(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def publish_new(path: Path, data: bytes) -> bool:
    """Writes a file that many may try to write: True for exactly one of them. Raises OSError.

    `link` refuses an existing name where `rename` would silently replace it. A retried link over
    NFS may answer EEXIST to the very call that made it: then the inode decides.
    """
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
        won = True
    except FileExistsError:
        won = _same_file(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(path.parent)
    return won


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return temporary
