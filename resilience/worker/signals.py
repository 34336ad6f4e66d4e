"""Stop signals: noted, never acted upon in the handler."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

from .errors import JoinRefused

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1)


class StopSignals:
    """Takes SIGTERM and SIGUSR1 over; the file descriptor ``fd`` is readable when one has come.

    A rank that sits in a collective runs no Python handler, but C code writes to the wake-up
    descriptor at once, so that a thread can read it. The handler writes too: an event loop of the
    program may use the wake-up descriptor for itself.
    """

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise JoinRefused(
                "relight.join() was called from a thread; call it from the main thread, the only "
                "one in which Python can take signals"
            )
        self.came = False
        self.fd, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        others = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if others != -1:
            signal.set_wakeup_fd(others)
        self._forking = threading.local()
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork,
            after_in_child=self._after_fork_in_child,
        )

    def read(self) -> set[signal.Signals]:
        """The stop signals that came since the last call."""
        try:
            numbers = os.read(self.fd, 4096)
        except BlockingIOError:
            return set()
        return {number for number in STOP_SIGNALS if number in numbers}

    def give_back(self) -> None:
        """Signals mean again what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        with suppress(BlockingIOError):
            os.write(self._writer, bytes([number]))

    def _before_fork(self) -> None:
        # Python forgets a signal that reaches the child before its handlers are reset.
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def _after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _after_fork_in_child(self) -> None:
        # Data-loader workers and their like die of TERM as they always did.
        for number in STOP_SIGNALS:
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL)
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)
        self._after_fork()
