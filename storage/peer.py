"""Who is at the other end of a Unix socket. Standard library only, for agents are light."""

from __future__ import annotations

import socket
import struct


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end (SO_PEERCRED of unix(7))."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", credentials)
    return int(pid), int(uid)
