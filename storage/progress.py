"""A bar with speed and time left, when a person is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Advance = Callable[[int], None]
Progress = Callable[[int], AbstractContextManager[Advance]]  # of so many bytes in all


def ignored(size_bytes: int) -> None:
    """Nobody counts."""


def unseen(total_bytes: int) -> AbstractContextManager[Advance]:
    """Nobody is looking."""
    return nullcontext(ignored)


@contextmanager
def progress(what: str, total_bytes: int) -> Iterator[Advance]:
    """Gives the function to call with bytes that are done. Nothing is shown in a log or a pipe."""
    if not sys.stderr.isatty():
        yield ignored
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=total_bytes)
        yield lambda size_bytes: bars.advance(bar, size_bytes)
