"""What people have left in the run folder for an attempt that runs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..run_folder import RunFolder

What = Literal["checkpoint", "restart"]
_log: Final = logging.getLogger(__name__)
_LIMIT_S: Final = 5.0
_WISHES: Final[tuple[What, ...]] = ("checkpoint", "restart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """``cancelled`` is what the mark says, None without one; ``wanted`` are the requests."""

    cancelled: str | None = None
    held: bool = False
    wanted: frozenset[What] = frozenset()


def read_marks(folder: RunFolder) -> Marks:
    """Raises OSError when it cannot be known."""
    wanted = (what for what in _WISHES if _is_there(request_path(folder, what)))
    return Marks(
        cancelled=_read_cancelled(folder),
        held=_is_there(folder.held),
        wanted=frozenset(wanted),
    )


async def look_for_cancel(folder: RunFolder) -> str | None:
    """What the mark of a cancel says; None when there is none, or nobody can know."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await asyncio.to_thread(_read_cancelled, folder)
    except OSError as error:
        _log.warning("whether the run was cancelled is not known for now: %s", error)
        return None


def request_path(folder: RunFolder, what: What) -> Path:
    """Where a request lies until it is taken."""
    return folder.requests / f"{what}.json"


def _read_cancelled(folder: RunFolder) -> str | None:
    try:
        return folder.cancelled.read_text() or "relight cancel was called"
    except FileNotFoundError:
        return None


def _is_there(path: Path) -> bool:
    # Not exists(), which calls some errors of a file system an absence, and raises others.
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True
