"""A way between agents and their supervisor that can be cut, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

Writers = set[asyncio.StreamWriter]


class Proxy:
    """Passes on to whatever port is asked for; while it is cut, who comes is sent away."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._writers: Writers = set()
        self._is_cut = False
        self._target = 0
        self.port = 0
        self.turned_away = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, host="127.0.0.1", port=0)
        )
        self.port = server.sockets[0].getsockname()[1]
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(server), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def to(self, port: int) -> int:
        """The port that leads to this one."""
        self._target = port
        return self.port

    def cut(self) -> None:
        """All connections break, without a last word."""
        self._is_cut = True
        asyncio.run_coroutine_threadsafe(self._break(), self._loop).result(10)

    def heal(self) -> None:
        self._is_cut = False

    async def _break(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        await self._break()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            self.turned_away.set()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        if self._is_cut:  # meanwhile
            back.transport.abort()
            writer.transport.abort()
            return
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()
        self._writers.discard(writer)
