"""Whole lines from a stream socket."""

from __future__ import annotations

import socket

from ..messages import MAX_LINE_BYTES


class Lines:
    """Whole lines from a stream socket; ``peer_pid`` is the process at its other end."""

    def __init__(self, connection: socket.socket, peer_pid: int = 0) -> None:
        self.connection = connection
        self.peer_pid = peer_pid
        self._rest = b""

    def read(self) -> list[bytes] | None:
        """The lines that have come; None at the end of the stream."""
        try:
            data = self.connection.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            return None
        return lines
