"""How far the save or the restore of this rank is, for people who look at the run.

Threads that write or read only count; the listener tells, as often as it beats. Of what takes less
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
        self._told: tuple[float, int] = self._begun_s + _WORTH_TELLING_S, -1

    def advance(self, size_bytes: int) -> None:
        with self._lock:
            self._done_bytes += size_bytes

    def word(self, now_s: float, beat_s: float) -> Message | None:
        """What is new; None when nothing is, or it was told a moment ago."""
        told_s, told_bytes = self._told
        first, done_bytes = told_bytes < 0, self._done_bytes
        if done_bytes == told_bytes or now_s < (told_s if first else told_s + beat_s):
            return None
        self._told = now_s, done_bytes
        seconds = round(now_s - self._begun_s, 3)
        return {"type": "moving", **self._about, "done_bytes": done_bytes, "seconds": seconds}


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
            with self._telling:  # what follows, such as ``saved``, has the last word
                self._moving = None

    def tell(self, send: Callable[[Message], None], now_s: float, beat_s: float) -> None:
        """Says how far it is, if that has changed since it was said."""
        with self._telling:
            word = None if self._moving is None else self._moving.word(now_s, beat_s)
            if word is not None:
                send(word)
