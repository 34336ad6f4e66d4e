"""The folder that one run has in the tier of one node: private, held while it is used, and removed.

A name proves nothing: the tier may hold other things, and others may write there. What is removed
is a private folder of this user that has our mark, and is reached through no link.

``python -m relight.storage.tier_folder FOLDER`` removes that of a run.

Standard library only: agents use it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MARK: Final = ".relight-tier"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def tier_folder(tier: Path, run_id: str, node: str) -> Path:
    """Of one run on one node: hosts of a test may share a machine, and its memory."""
    return run_folder(tier, run_id) / node


def run_folder(tier: Path, run_id: str) -> Path:
    return tier / f"relight-{run_id}"


def make_private(folder: Path) -> None:
    """Makes the folder of a run and node, and the tier itself where what it lies in is there.

    Raises OSError, also when another user could look into it, or something else has its name.
    """
    _require_tier(folder.parents[1])
    with suppress(FileExistsError):
        folder.parent.mkdir(mode=0o700)
    with _opened(folder.parent) as run:
        fcntl.flock(run, fcntl.LOCK_EX)  # somebody may just find it empty, and remove it
        if not _is_ours(run):
            if _names(run):
                raise FileExistsError(errno.EEXIST, "it is not relight's", str(folder.parent))
            os.close(os.open(MARK, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=run))
        with suppress(FileExistsError):
            os.mkdir(folder.name, 0o700, dir_fd=run)
        with _opened(folder.name, run):
            pass


def _require_tier(tier: Path) -> None:
    """Makes no more than one folder: what it lies in may be a mount that is missing."""
    if tier.is_dir():
        return
    try:
        tier.mkdir(mode=0o700)
    except FileExistsError:
        if not tier.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "the tier is no folder", str(tier)) from None
    except OSError as error:
        reason = (
            f"the tier is not there, and cannot be made in {tier.parent} ({error.strerror}): make "
            "it on each node, or name another folder"
        )
        raise OSError(error.errno, reason, str(tier)) from error


def hold(folder: Path) -> int:
    """Keeps the folder from `sweep` for as long as the descriptor is open. Raises OSError."""
    while True:
        try:
            make_private(folder)
            fd = os.open(folder, _FOLDER)
        except FileNotFoundError:
            if not folder.parents[1].is_dir():
                raise
            continue  # somebody has swept it
        fcntl.flock(fd, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), folder.lstat()):
                return fd
        os.close(fd)  # somebody has swept it before it was held


def sweep(tier: Path) -> None:
    """Removes what runs of this user have left that were killed: nobody holds it."""
    with suppress(OSError):  # the tier is not there
        for run in tier.iterdir():
            if run.name.startswith("relight-"):
                _remove(run)


def remove(folder: Path) -> None:
    """Removes all that a run has on this node; not what somebody holds, nor what is not ours."""
    _remove(folder.parent, folder.name)


def _remove(run: Path, only: str | None = None) -> None:
    with suppress(OSError), _opened(run) as fd:  # another agent sweeps too, or it is not ours
        if not _is_ours(fd):
            return
        for name in _names(fd):
            if name != MARK and only in (None, name):
                _remove_node(name, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if _names(fd) == [MARK]:  # other nodes of a test may be in there
            os.unlink(MARK, dir_fd=fd)
            run.rmdir()


def _remove_node(node: str, run: int) -> None:
    with suppress(OSError), _opened(node, run) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(node, ignore_errors=True, dir_fd=run)


@contextmanager
def _opened(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    """A private folder of this user, not a link to one. Raises OSError."""
    fd = os.open(folder, _FOLDER, dir_fd=parent)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(errno.EACCES, "it is no private folder of this user", str(folder))
        yield fd
    finally:
        os.close(fd)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _is_ours(run: int) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(MARK, dir_fd=run, follow_symlinks=False).st_mode)
    return False


if __name__ == "__main__":
    _remove(Path(sys.argv[1]))
