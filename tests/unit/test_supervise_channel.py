"""The end of a channel, while somebody is about to come."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from relight.resilience.supervise.channel import Channel, _Connection

PATIENCE_S = 5.0  # less than HELLO_LIMIT_S, after which a stranger is turned away anyway


def test_who_is_let_in_at_the_end_does_not_keep_it(tmp_path: Path) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel(lambda line, message: None, "the token")
        port = await channel.open(tmp_path / "token")
        ours, theirs = socket.socketpair()
        with socket.create_connection(("127.0.0.1", port)), theirs:
            while not channel._open:
                await asyncio.sleep(0)
            closing = asyncio.create_task(channel.close())
            await loop.connect_accepted_socket(lambda: _Connection(channel), ours)
            async with asyncio.timeout(PATIENCE_S):
                await closing
            assert theirs.recv(1) == b"", "it is told"

    asyncio.run(story())
