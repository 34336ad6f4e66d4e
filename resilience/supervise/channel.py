"""The supervisor's end of the lines to the rank agents: one TCP server, JSON lines, one token.

Asyncio; no decision is made here. Whoever does not show the token of this attempt and the number of
the current step is turned away, so that an agent of an older step cannot join a newer one.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..messages import MAX_LINE_BYTES, Message, decode, encode, number, text

HELLO_LIMIT_S: Final = 10.0
BEAT_S: Final = 5.0
_BACKLOG: Final = 4096  # all agents of a large world connect at once
_BEAT: Final = encode({"type": "beat"})


class AgentLine(asyncio.Protocol):
    """The connection of one agent; nameless until it has shown the token.

    A protocol and not a stream: with thousands of them a task and two buffers each are too much.
    """

    __slots__ = ("_channel", "_late", "_rest", "_transport", "heard", "local_task", "node", "task")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""
        self.task = -1
        self.node = ""
        self.local_task = -1
        self.heard = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._late = asyncio.get_running_loop().call_later(HELLO_LIMIT_S, self.close)
        self._channel.opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        if data == _BEAT and not self._rest:  # most of what comes
            return
        *lines, self._rest = (self._rest + data).split(b"\n") if self._rest else data.split(b"\n")
        try:
            for line in lines:
                self._read(decode(line))
            if len(self._rest) > MAX_LINE_BYTES:
                self.close()
        except ValueError:  # not one of ours; the loss is reported with the end of the connection
            self.close()

    def _read(self, message: Message) -> None:
        if self._transport.is_closing():
            return
        if self.task < 0:
            self._channel.welcome(self, message)
        self._channel.on_message(self, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._channel.gone(self)

    @property
    def leads(self) -> bool:
        return self.local_task == 0

    def named(self, task: int, local_task: int, node: str) -> None:
        """It has said who it is."""
        self._late.cancel()
        self.task, self.local_task, self.node = task, local_task, node

    def send(self, message: Message) -> None:
        """Queue a message; a broken connection shows itself to the reader."""
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        """Queue a message that is encoded already."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


class Channel:
    """Serves agents; calls ``on_message(line, message)`` and ``on_lost(line)`` in the loop."""

    def __init__(
        self,
        on_message: Callable[[AgentLine, Message], None],
        on_lost: Callable[[AgentLine], None],
    ) -> None:
        self.on_message = on_message
        self._on_lost = on_lost
        self._server: asyncio.Server | None = None
        self._token = secrets.token_hex(16)
        self._step = ""
        self._lines: dict[int, AgentLine] = {}
        self._open: set[AgentLine] = set()
        self._all_gone = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None

    async def open(self, token_file: Path) -> int:
        """Start to listen; write the token for agents to read; return the port."""
        token_file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(self._token)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: AgentLine(self), sock=_listening_socket(), backlog=_BACKLOG
        )
        self._beats = asyncio.create_task(self._beat())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End all connections."""
        if self._beats is not None:
            self._beats.cancel()
        if self._server is not None:
            self._server.close()
        for line in list(self._open):
            line.close()
        while self._open:
            self._all_gone.clear()
            await self._all_gone.wait()

    def expect(self, step: str) -> None:
        """From now on only agents of this step may connect; others are dropped."""
        self._step = step
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()

    @property
    def lines(self) -> dict[int, AgentLine]:
        """The connected agents by task."""
        return self._lines

    def broadcast(self, message: Message) -> None:
        data = encode(message)
        for line in self._lines.values():
            line.write(data)

    def silent(self, leaders_s: float, others_s: float) -> Iterator[AgentLine]:
        """Agents that have not been heard for so long; one leader on each node speaks for it."""
        now = time.monotonic()
        for line in list(self._lines.values()):
            if now - line.heard > (leaders_s if line.leads else others_s):
                yield line

    def forgive_silence(self) -> None:
        """Begin to wait for every agent anew."""
        now = time.monotonic()
        for line in self._lines.values():
            line.heard = now

    def drop(self, line: AgentLine) -> None:
        """Forget an agent that is held for lost."""
        if self._lines.get(line.task) is line:
            del self._lines[line.task]
        line.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.broadcast({"type": "beat"})

    # What the lines report

    def opened(self, line: AgentLine) -> None:
        self._open.add(line)

    def welcome(self, line: AgentLine, hello: Message) -> None:
        """Let an agent in by its first message.

        Raises:
            ValueError: it is not one of ours.
        """
        right = hmac.compare_digest(text(hello, "token"), self._token)
        if not right or text(hello, "step") != self._step:
            raise ValueError("not an agent of this step")
        line.named(number(hello, "task"), number(hello, "local_task"), text(hello, "node"))
        self._lines[line.task] = line

    def gone(self, line: AgentLine) -> None:
        self._open.discard(line)
        if not self._open:
            self._all_gone.set()
        if self._lines.get(line.task) is line:
            del self._lines[line.task]
            self._on_lost(line)


def _listening_socket() -> socket.socket:
    """One port for both families; asyncio would take a free port for each."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("", 0), backlog=_BACKLOG)
