"""The folder that one run has in the tier of one node: private, held while it is used, and removed.

Standard library only: agents use it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path


def tier_folder(tier: Path, run_id: str, node: str) -> Path:
    """Of one run on one node: hosts of a test may share a machine, and its memory."""
    return tier / f"relight-{run_id}" / node


def make_private(folder: Path) -> None:
    """Makes the folder of a run and node; the tier itself must be there.

    Raises OSError, also when another user could look into it.
    """
    for one in (folder.parent, folder):
        with suppress(FileExistsError):
            one.mkdir(mode=0o700)
        found = one.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid != os.getuid():
            raise PermissionError(errno.EACCES, "it is no private folder of this user", str(one))


def hold(folder: Path) -> int:
    """Keeps the folder from `sweep` for as long as the descriptor is open. Raises OSError."""
    while True:
        make_private(folder)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), folder.lstat()):
                return fd
        os.close(fd)  # somebody has swept it before it was held


def sweep(tier: Path) -> None:
    """Removes what runs of this user have left that were killed: nobody holds it."""
    with suppress(OSError):  # another agent sweeps too, or the tier is not there
        for folder in tier.glob("relight-*/*"):
            remove(folder)


def remove(folder: Path) -> None:
    """Removes all that a run has on this node; not what somebody holds, nor another user's."""
    with suppress(OSError):
        if folder.lstat().st_uid != os.getuid():
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
        folder.parent.rmdir()  # unless other nodes of a test are in there
