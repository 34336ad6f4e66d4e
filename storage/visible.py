"""Files that another node has just made: a network file system may show them late."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

# NFS believes for up to a minute that a name is not there (acdirmax in nfs(5)).
LIMIT_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_NOT_YET: Final = (errno.ENOENT, errno.ESTALE)


def await_file(path: Path, limit_s: float = LIMIT_S) -> None:
    """Returns when the file can be seen. Raises OSError when it cannot, in that time or at all."""
    give_up_at_s = time.monotonic() + limit_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            path.stat()
        except OSError as error:
            if error.errno not in _NOT_YET:
                raise
            if time.monotonic() >= give_up_at_s:
                raise FileNotFoundError(
                    error.errno,
                    f"{os.strerror(error.errno)} after {limit_s:g} s of waiting: does this node "
                    "see the same file system as the one that wrote it?",
                    str(path),
                ) from error
        else:
            return
        # To list a folder makes a client ask its server anew.
        for folder in (path.parent.parent, path.parent):
            with suppress(OSError):
                next(folder.iterdir(), None)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
