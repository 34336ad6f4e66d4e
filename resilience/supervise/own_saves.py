"""Programs that save by themselves: how they are told to, how it is seen, and what resumes them."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path

from ..config import RunConfig


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


def command_of(config: RunConfig, *, started_before: bool) -> tuple[str, ...]:
    """What is to be run: ``resume`` once there is something to go on from."""
    if not config.resume or not started_before:
        return config.command
    if config.checkpoint.done is not None and not saved_files(config):
        return config.command
    return config.resume
