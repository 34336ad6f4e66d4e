"""A submission that is told to end by TERM, or by the HUP of a terminal that is closed, takes back
what it has sent, as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


class ToldToEnd(KeyboardInterrupt):
    """Raised in the place where the signal ``number`` came."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interrupted_by_ends() -> Iterator[None]:
    """Within it such a signal is an interrupt; what is ignored, as under nohup, stays ignored."""
    heard = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, _: FrameType | None) -> None:
    for each in _ENDS:  # a closed terminal sends several: the first is enough, Ctrl-C ends the rest
        signal.signal(each, signal.SIG_IGN)
    raise ToldToEnd(number)
