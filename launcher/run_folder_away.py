"""A run folder that cannot be read for a while: it is waited for, as other file systems are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from relight.errors import RelightError

from .job_output import tell

Found = TypeVar("Found")
LIMIT_S: Final = 900.0
_PAUSE_S: Final = 2.0


class RunFolderAway(RelightError):
    """The run folder was not there, or not readable, for too long."""


def once_there(
    root: Path,
    look: Callable[[], Found],
    *,
    limit_s: float = LIMIT_S,
    sleep: Callable[[float], object] = time.sleep,
) -> Found:
    """What ``look`` finds in a run folder, at the latest ``limit_s`` from now.

    Raises:
        RunFolderAway: it could not look in that time.
    """
    give_up_at = time.monotonic() + limit_s
    told = False
    while True:
        try:
            os.listdir(root)  # noqa: PTH208 - an absent folder would look like a run that has not begun
            return look()
        except OSError as error:
            if time.monotonic() >= give_up_at:
                raise RunFolderAway(
                    f"{root} was away for {limit_s:.0f} s: {error}; when it is back, submit the "
                    "job again, or `relight run --resume`: it goes on from its newest checkpoint"
                ) from error
            if not told:
                tell(f"the run folder is waited for: {error}")
                told = True
        sleep(_PAUSE_S)
