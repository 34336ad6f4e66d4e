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


class OwnSave:
    """One save of programs that save by themselves, from before they are told to.

    Ranks may each write a marker of their own, so the first that is new says little: all has come
    when none has changed for a while.
    """

    def __init__(self, config: RunConfig) -> None:
        self.has_markers = config.checkpoint.done is not None
        self._files = Look(partial(saved_files, config))
        self._before: Mapping[str, int] | None = None
        self._seen: Mapping[str, int] | None = None
        self._changed = time.monotonic()

    async def begin(self, limit_s: float) -> None:
        """What there is before; call it before they are told."""
        self._before = self._seen = await self._files.now(limit_s)
        self._changed = time.monotonic()

    async def is_done(self, limit_s: float) -> bool:
        """Whether a marker is new, and none has changed for ``QUIET_S``."""
        if not self.has_markers or (now := await self._files.now(limit_s)) is None:
            return False
        if self._before is None:
            self._before = self._seen = now
        if now != self._seen:
            self._seen, self._changed = now, time.monotonic()
        return self._seen != self._before and time.monotonic() - self._changed > QUIET_S


def command_of(config: RunConfig, *, started_before: bool) -> tuple[str, ...]:
    """What is to be run: ``resume`` once there is something to go on from."""
    if not config.resume or not started_before:
        return config.command
    if config.checkpoint.done is not None and not saved_files(config):
        return config.command
    return config.resume
