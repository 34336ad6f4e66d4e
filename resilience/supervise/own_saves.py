"""Programs that save by themselves: how they are told to, how it is seen, and what resumes them."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ..config import RunConfig
from .look import Look

QUIET_S: Final = 5.0
_ONE_SAVE_S: Final = 60.0  # between the first and the last marker that one save leaves


def saved_files(config: RunConfig) -> Mapping[str, int]:
    """What the program has saved, by ``checkpoint.done``: files and when they changed (ns)."""
    if config.checkpoint.done is None:
        return {}
    root = Path(config.working_dir)
    found = {}
    for name in glob.glob(config.checkpoint.done, root_dir=root, recursive=True):  # noqa: PTH207 - it may be absolute
        try:
            found[name] = os.stat(root / name).st_mtime_ns  # noqa: PTH116
        except FileNotFoundError:
            continue  # replaced just now
    return found


def of_one_save(files: Mapping[str, int]) -> int:
    """How many markers the last save has left among these: one at least."""
    newest_ns = max(files.values(), default=0)
    return max(1, sum(newest_ns - ns <= _ONE_SAVE_S * 1e9 for ns in files.values()))


class OwnSave:
    """One save of programs that save by themselves, from before they are told to.

    Ranks may each write a marker of their own, so the first that is new says little: all has come
    when there are as many new ones as the last save left, and none has changed for a while. NFS may
    hide a name of another node for a minute, so the while alone says little, too.
    """

    def __init__(self, config: RunConfig) -> None:
        self.has_markers = config.checkpoint.done is not None
        self._files = Look(partial(saved_files, config))
        self._before: Mapping[str, int] | None = None
        self._seen: Mapping[str, int] | None = None
        self._changed = time.monotonic()

    async def begin(self, limit_s: float) -> None:
        """What there is before; call it when they are told, or before."""
        self._before = self._seen = await self._files.now(limit_s)
        self._changed = time.monotonic()

    async def is_done(self, limit_s: float) -> bool:
        """Whether there are new markers enough, and none has changed for ``QUIET_S``."""
        if not self.has_markers or (now := await self._files.now(limit_s)) is None:
            return False
        if self._before is None:
            self._before = self._seen = now
        if now != self._seen:
            self._seen, self._changed = now, time.monotonic()
        new = sum(self._before.get(name) != changed for name, changed in now.items())
        return new >= of_one_save(self._before) and time.monotonic() - self._changed > QUIET_S


def command_of(config: RunConfig, *, started_before: bool) -> tuple[str, ...]:
    """What is to be run: ``resume`` once there is something to go on from."""
    if not config.resume or not started_before:
        return config.command
    if config.checkpoint.done is not None and not saved_files(config):
        return config.command
    return config.resume
