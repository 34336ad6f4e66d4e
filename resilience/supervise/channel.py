"""The supervisor's end of the lines to the rank agents: one TCP server, JSON lines, one token.

Asyncio; no decision is made here. Whoever does not show the token of this attempt and the number of
the current step is turned away, so that an agent of an older step cannot join a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..messages import MAX_LINE_BYTES, Message, decode, encode, number, text

HELLO_LIMIT_S: Final = 10.0
BEAT_S: Final = 5.0


@dataclass(slots=True)
class Line:
    """The connection of one agent."""

    task: int
    node: str
    local_task: int
    writer: asyncio.StreamWriter
    heard: float = field(default_factory=time.monotonic)

    def send(self, message: Message) -> None:
        """Queue a message; a broken connection shows itself to the reader."""
        if not self.writer.is_closing():
            self.writer.write(encode(message))


class Channel:
    """Serves agents; calls ``on_message(line, message)`` and ``on_lost(line)`` in the loop."""

    def __init__(
        self,
        on_message: Callable[[Line, Message], None],
        on_lost: Callable[[Line], None],
    ) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._server: asyncio.Server | None = None
        self._token = secrets.token_hex(16)
        self._step = ""
        self._lines: dict[int, Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beats: asyncio.Task[None] | None = None

    async def open(self, token_file: Path) -> int:
        """Start to listen; write the token for agents to read; return the port."""
        token_file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(self._token)
        self._server = await asyncio.start_server(
            self._serve, sock=_listening_socket(), limit=MAX_LINE_BYTES
        )
        self._beats = asyncio.create_task(self._beat())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End all connections."""
        if self._beats is not None:
            self._beats.cancel()
        for line in self._lines.values():
            line.writer.close()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def expect(self, step: str) -> None:
        """From now on only agents of this step may connect; others are dropped."""
        self._step = step
        for line in self._lines.values():
            line.writer.close()
        self._lines = {}

    @property
    def lines(self) -> dict[int, Line]:
        """The connected agents by task."""
        return self._lines

    def broadcast(self, message: Message) -> None:
        for line in self._lines.values():
            line.send(message)

    def silent(self, limit_s: float) -> Iterator[Line]:
        """Agents that have not been heard for longer than ``limit_s``."""
        now = time.monotonic()
        return (line for line in list(self._lines.values()) if now - line.heard > limit_s)

    def forgive_silence(self) -> None:
        """Begin to wait for every agent anew."""
        now = time.monotonic()
        for line in self._lines.values():
            line.heard = now

    def drop(self, line: Line) -> None:
        """Forget an agent that is held for lost."""
        if self._lines.get(line.task) is line:
            del self._lines[line.task]
            line.writer.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.broadcast({"type": "beat"})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        line = await self._welcome(reader, writer)
        if line is None:
            writer.close()
            return
        try:
            await self._read(line, reader)
        finally:
            known = self._lines.get(line.task) is line
            self.drop(line)
            if known:
                self._on_lost(line)

    async def _welcome(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Line | None:
        try:
            hello = decode(await asyncio.wait_for(reader.readline(), HELLO_LIMIT_S))
            right = hmac.compare_digest(text(hello, "token"), self._token)
            if not right or text(hello, "step") != self._step:
                return None
            line = Line(
                number(hello, "task"), text(hello, "node"), number(hello, "local_task"), writer
            )
        except (ValueError, TimeoutError, OSError):
            return None  # not one of ours
        self._lines[line.task] = line
        self._on_message(line, hello)
        return line

    async def _read(self, line: Line, reader: asyncio.StreamReader) -> None:
        # A torn connection or a line that is no message ends it; the caller reports the loss.
        with contextlib.suppress(ValueError, OSError):
            while data := await reader.readline():
                line.heard = time.monotonic()
                self._on_message(line, decode(data))


def _listening_socket() -> socket.socket:
    """One port for both families; asyncio would take a free port for each."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True
        )
    return socket.create_server(("", 0), backlog=4096)
