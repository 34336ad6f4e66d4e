"""The connection to the rank agent: whole messages in, whole messages out."""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import Final

from ..messages import Message, abstract, decode, encode
from .errors import AgentUnreachable
from .transfer import Transfer

# An agent that reads nothing for so long is dead; training must not hang on it.
_SEND_TIMEOUT_S: Final = 20.0
_CHUNK_BYTES: Final = 65536


class Line:
    """One socket to the agent. Any thread may send, one receives.

    Attributes:
        lost: the agent is gone; what is sent from then on is dropped without a word.
        hung_up: the agent's end is closed.
        copied: there is no copy from the node's tier that a save has to wait for.
        transfer: the save or restore that goes on.
    """

    _hurried = False

    def __init__(self, address: str) -> None:
        self.lost = False
        self.hung_up = False
        self.copied = threading.Event()
        self.copied.set()
        self.transfer = Transfer()
        self._lock = threading.Lock()
        self._rest = b""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(_SEND_TIMEOUT_S)
            self._socket.connect(abstract(address))
        except OSError as error:
            raise AgentUnreachable(
                f"the rank agent does not answer on {address} ({error.strerror or error}); unset "
                "RELIGHT_AGENT_SOCKET to run without relight"
            ) from error
        # A forked worker that outlives this process must not keep the line open.
        os.register_at_fork(after_in_child=self._socket.close)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        with self._lock:
            if self.lost:
                return
            try:
                self._socket.sendall(encode(message))
            except OSError:
                # Maybe half a line is out: nothing sensible can follow it.
                self._give_up()

    def receive(self) -> list[dict[str, object]]:
        """The messages that have arrived; call it when the socket is readable."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self.hung_up = True
            with self._lock:
                self._give_up()
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [decode(line) for line in lines]

    def await_hang_up(self) -> None:
        """Returns when the agent is gone; what it says until then counts no more."""
        while not self.hung_up:
            select.select([self._socket], [], [])
            self.receive()

    def owe_copy(self) -> None:
        """A save is in the node's tier yet: the next one waits until the agent has copied it."""
        if not self.lost and not self._hurried:
            self.copied.clear()

    def hurry(self) -> None:
        """From now on no save waits for a copy: the process has to end, or its agent is gone."""
        self._hurried = True
        self.copied.set()

    def _give_up(self) -> None:
        self.lost = True
        # Not closed: the number must not be given to another file while a thread waits on it.
        self._socket.settimeout(0)
