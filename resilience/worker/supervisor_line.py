"""The agent's end of the line to its supervisor, which is made anew when it breaks.

The program runs on meanwhile: a switch that restarts, or a short loss of the network,
costs nothing.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ..messages import Message, decode, encode
from ..numbered import Numbered
from .lines import Lines

_FIRST_S: Final = 30.0
_RETRY_S: Final = 0.5
_UNANSWERED_MS: Final = 2000  # the kernel breaks a connection whose bytes nobody confirms so long
# Nobody listens at the supervisor's port: it has ended. Once may be chance, on the way.
_REFUSALS: Final = 2


class SupervisorLine:
    """Tells and hears. ``on_order`` is called with each new order; ``ended``: nobody is there."""

    def __init__(
        self,
        address: tuple[str, int],
        hello: Message,
        selector: selectors.BaseSelector,
        on_order: Callable[[Message], None],
    ) -> None:
        self._hello = hello
        self._selector = selector
        self._on_order = on_order
        self._numbered = Numbered()
        self._lines: Lines | None = None
        self._welcome = False  # over this connection
        self._known = False
        self._attempt: socket.socket | None = None
        self._retry_at = 0.0
        self._refusals = 0
        self.ended = False
        self.heard = time.monotonic()
        connection = socket.create_connection(address, timeout=_FIRST_S)
        self._family, self._address = connection.family, connection.getpeername()
        self._greet(connection)

    def tell(self, message: Message) -> None:
        """A message that the supervisor gets, sooner or later, and once."""
        line = self._numbered.say(encode(message))
        if self._welcome:
            self._send(line)

    def mention(self, message: Message) -> None:
        """A message that may be lost: the next of its kind says it again."""
        if self._welcome:
            self._send(encode({**message, **self._numbered.confirmation()}))

    def beat(self) -> None:
        if self._welcome:
            self._send(self._numbered.beat())

    def silence_s(self) -> float:
        """How long nothing has come from the supervisor."""
        return time.monotonic() - self.heard

    def keep(self) -> None:
        """Try again, when it is time, while there is no connection."""
        if self._lines is None and time.monotonic() > self._retry_at:
            self._try_again()

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
        lines = self._lines = Lines(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(lines))
        self._send(encode({**self._hello, "got": self._numbered.heard}))

    def _send(self, data: bytes) -> None:
        if self._lines is None:
            return
        try:
            self._lines.connection.sendall(data)
        except OSError:
            self._break()

    def _read(self, lines: Lines) -> None:
        if lines is not self._lines:
            return  # it broke in this very turn
        orders = lines.read()
        if orders is None:
            self._break()
            return
        self.heard = time.monotonic()
        for order in map(decode, orders):
            new = self._numbered.is_new(order)
            if order["type"] == "welcome":
                self._welcome, self._refusals, self._known = True, 0, True
                self._send(self._numbered.missed())
            elif new:
                self._on_order(order)

    def _break(self) -> None:
        if self._lines is None:
            return
        self._selector.unregister(self._lines.connection)
        self._lines.connection.close()
        self._retry_at = time.monotonic() + (0.0 if self._welcome else _RETRY_S)
        self._lines, self._welcome = None, False
        self.ended = not self._known  # turned away at the door

    def _try_again(self) -> None:
        self._give_up_attempt()
        self._retry_at = time.monotonic() + _RETRY_S
        attempt = self._attempt = socket.socket(self._family)
        attempt.setblocking(False)
        failed = attempt.connect_ex(self._address)
        if failed in (0, errno.EINPROGRESS):
            made = partial(self._connected, attempt)
            self._selector.register(attempt, selectors.EVENT_WRITE, made)
        else:
            self._attempt = None
            attempt.close()
            self._note_refusal(failed)

    def _connected(self, attempt: socket.socket) -> None:
        if attempt is not self._attempt:
            return
        self._attempt = None
        self._selector.unregister(attempt)
        failed = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            attempt.close()
            self._note_refusal(failed)
        else:
            self._greet(attempt)

    def _note_refusal(self, failed: int) -> None:
        self._refusals = self._refusals + 1 if failed == errno.ECONNREFUSED else 0
        self.ended = self._refusals >= _REFUSALS

    def _give_up_attempt(self) -> None:
        if self._attempt is not None:
            self._selector.unregister(self._attempt)
            self._attempt.close()
            self._attempt = None
