"""How far the save or the restore of this rank is, for people who look at the run.

Threads that write or read only count; the listener tells of it when it beats. Of what takes less
than a second nothing is said. Standard library only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..messages import Message

_WORTH_TELLING_S: Final = 1.0


class _Moving:
    """One save or restore."""

    def __init__(self, what: str, step: int, total_bytes: int) -> None:
        self._about = {"what": what, "step": step, "total_bytes": total_bytes}
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        self._done_bytes = 0

    def advance(self, size_bytes: int) -> None:
        with self._lock:
            self._done_bytes += size_bytes

    def word(self, now_s: float) -> Message | None:
        seconds = round(now_s - self._begun_s, 3)
        if seconds < _WORTH_TELLING_S:
            return None
        return {**self._about, "done_bytes": self._done_bytes, "seconds": seconds}


class Transfer:
    """The one that is under way, if any."""

    def __init__(self) -> None:
        self._telling = threading.Lock()
        self._moving: _Moving | None = None

    @contextmanager
    def shown(self, what: str, step: int, total_bytes: int) -> Iterator[Callable[[int], None]]:
        """While it lasts it is told of. Gives the function to call with bytes that are done."""
        moving = _Moving(what, step, total_bytes)
        with self._telling:
            self._moving = moving
        try:
            yield moving.advance
        finally:
            with self._telling:
                self._moving = None

    @contextmanager
    def news(self, now_s: float) -> Iterator[Message | None]:
        """What there is to be told; None when nothing is.

        It does not end before that is told, so that what follows, as ``saved``, has the last word.
        """
        with self._telling:
            yield None if self._moving is None else self._moving.word(now_s)
