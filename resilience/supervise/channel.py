"""The supervisor's end of the lines to the rank agents: one TCP server, JSON lines, one token.

Asyncio; no decision is made here. Whoever does not show the token of the attempt and the number of
the current step is turned away, so that an agent of an older step cannot join a newer one.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..messages import MAX_LINE_BYTES, Message, decode, encode, number, text
from ..numbered import BEAT, Numbered
from .room import until_there_is_room

HELLO_LIMIT_S: Final = 10.0
BEAT_S: Final = 5.0
_TURN_S: Final = 0.05
NO_RANK: Final = -1
_BACKLOG: Final = 4096  # all agents of a large world connect at once


class _Connection(asyncio.Protocol):
    """One connection of an agent; nameless until it has shown the token.

    A protocol and not a stream: with thousands of them a task and two buffers each are too much.
    """

    __slots__ = ("_channel", "_late", "_rest", "_transport", "line")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""
        self.line: AgentLine | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._late = asyncio.get_running_loop().call_later(HELLO_LIMIT_S, self.close)
        self._channel.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.line is not None:
            self.line.heard = time.monotonic()
        if data == BEAT and not self._rest:  # most of what comes
            return
        *lines, self._rest = (self._rest + data).split(b"\n") if self._rest else data.split(b"\n")
        try:
            for line in lines:
                self._read(decode(line))
            if len(self._rest) > MAX_LINE_BYTES:
                self.close()
        except ValueError:  # not one of ours; the loss is reported when it does not come again
            self.close()

    def _read(self, message: Message) -> None:
        if self._transport.is_closing():
            return
        if self.line is None:
            self.line = self._channel.welcome(self, message)
            self._late.cancel()
            self.line.resume(self, message)
        elif not self.line.numbered.is_new(message):
            return
        self._channel.on_message(self.line, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._channel.closed(self)

    def write(self, data: bytes) -> None:
        """Queue bytes; a broken connection shows itself to the reader."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Close it without what the other end has not taken: a host that is gone takes nothing."""
        self._transport.abort()


class AgentLine:
    """What is said with one agent, over one connection after the other.

    Attributes:
        task: its number in its step.
        rank: that of its program in the generation, ``NO_RANK`` while it has none.
    """

    __slots__ = (
        "_connection", "address", "broken_at", "heard", "local_task", "node", "numbered", "pid",
        "rank", "task",
    )  # fmt: skip

    def __init__(self, hello: Message) -> None:
        self.task = number(hello, "task")
        self.rank = NO_RANK
        self.local_task = number(hello, "local_task")
        self.node = text(hello, "node")
        self.pid = number(hello, "pid")
        self.address = str(hello.get("address"))
        self.numbered = Numbered()
        self._connection: _Connection | None = None
        self.heard = time.monotonic()
        self.broken_at: float | None = None  # since when there is no connection

    @property
    def leads(self) -> bool:
        return self.local_task == 0

    def resume(self, connection: _Connection, hello: Message) -> None:
        """Go on over a new connection with what the agent has missed."""
        before, self._connection = self._connection, connection
        if before is not None:
            before.close()
        self.numbered.is_new(hello)
        self.heard, self.broken_at = time.monotonic(), None
        welcome = {"type": "welcome", "got": self.numbered.heard}
        connection.write(encode(welcome) + self.numbered.missed())

    def send(self, message: Message) -> None:
        """Say a message; the agent gets it once, however often the connection breaks."""
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        """Say a message that is encoded already."""
        numbered = self.numbered.say(data)
        if self._connection is not None:
            self._connection.write(numbered)

    def beat(self) -> None:
        if self._connection is not None:
            self._connection.write(self.numbered.beat())

    def broke(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection, self.broken_at = None, time.monotonic()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Channel:
    """Serves agents; calls ``on_message(line, message)`` in the loop.

    A connection that breaks says nothing: the agent makes it anew, or falls silent.
    """

    def __init__(self, on_message: Callable[[AgentLine, Message], None], token: str) -> None:
        self.on_message = on_message
        self._server: asyncio.Server | None = None
        self._token = token
        self._step = ""
        self._lines: dict[int, AgentLine] = {}
        self._dropped: set[int] = set()
        self._open: set[_Connection] = set()
        self._all_gone = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None

    async def open(self, token_file: Path) -> int:
        """Start to listen; write the token for agents to read; return the port."""
        await until_there_is_room(lambda: self._write_token(token_file))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), sock=_listening_socket(), backlog=_BACKLOG
        )
        self._beats = asyncio.create_task(self._beat())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _write_token(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(self._token)

    async def close(self) -> None:
        """End all connections."""
        if self._beats is not None:
            self._beats.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.abort()
        while self._open:
            self._all_gone.clear()
            await self._all_gone.wait()

    def expect(self, step: str) -> None:
        """From now on only agents of this step may connect; others are dropped."""
        self._step = step
        self._dropped.clear()
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()

    @property
    def lines(self) -> dict[int, AgentLine]:
        """The agents by task, those too that have to make their connection anew."""
        return self._lines

    def broadcast(self, message: Message) -> None:
        data = encode(message)
        for line in self._lines.values():
            line.write(data)

    def silent(self, leaders_s: float, others_s: float, broken_s: float) -> Iterator[AgentLine]:
        """Agents that have not been heard for so long; one leader on each node speaks for it.

        ``broken_s`` is for those whose connection broke: that long they may take to come again.
        """
        now = time.monotonic()
        for line in list(self._lines.values()):
            broken = line.broken_at is not None and now - line.broken_at > broken_s
            if broken or now - line.heard > (leaders_s if line.leads else others_s):
                yield line

    def forgive_silence(self) -> None:
        """Begin to wait for every agent anew."""
        now = time.monotonic()
        for line in self._lines.values():
            line.heard = now
            line.broken_at = now if line.broken_at is not None else None

    def drop(self, line: AgentLine) -> None:
        """Forget an agent that is held for lost; when it comes again it is told to end."""
        if self._lines.get(line.task) is line:
            del self._lines[line.task]
            self._dropped.add(line.task)
        line.close()

    async def all_ended(self, limit_s: float) -> None:
        """Wait until no agent that is still known has a connection."""
        give_up_at = time.monotonic() + limit_s
        while time.monotonic() < give_up_at:
            if all(line.broken_at is not None for line in self._lines.values()):
                return
            await asyncio.sleep(_TURN_S)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for line in self._lines.values():
                line.beat()

    # What the connections report

    def opened(self, connection: _Connection) -> None:
        self._open.add(connection)
        if self._server is None or not self._server.is_serving():  # it was let in just before
            connection.abort()

    def welcome(self, connection: _Connection, hello: Message) -> AgentLine:
        """Let an agent in by its first message.

        Raises:
            ValueError: it is not one of ours, or not any more.
        """
        if not hmac.compare_digest(text(hello, "token"), self._token):
            raise ValueError("not an agent of this attempt")
        task = number(hello, "task")
        line = self._lines.get(task) or AgentLine(hello)
        known = line.pid == number(hello, "pid") and task not in self._dropped
        if not known or text(hello, "step") != self._step:
            connection.write(encode({"type": "quit"}))
            raise ValueError("not an agent of this step")
        self._lines[task] = line
        return line

    def closed(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._all_gone.set()
        if connection.line is not None:
            connection.line.broke(connection)


def _listening_socket() -> socket.socket:
    """One port for both families; asyncio would take a free port for each."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("", 0), backlog=_BACKLOG)
