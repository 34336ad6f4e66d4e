"""A real agent and its programs, against a real channel."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from relight.resilience.messages import Message
from relight.resilience.supervise.channel import AgentLine, Channel

PATIENCE_S = 60.0


@dataclass
class Stage:
    """A channel, what agents said on it, and one agent process."""

    folder: Path
    said: list[Message] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self.channel = Channel(self._on_message, "the token")

    def _on_message(self, line: AgentLine, message: Message) -> None:
        self.said.append(message)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def hear(self, kind: str) -> Message:
        await self.until(lambda: any(message["type"] == kind for message in self.said))
        return next(message for message in self.said if message["type"] == kind)

    async def agent(
        self, step: str = "1", token: str | None = None, port: int | None = None
    ) -> asyncio.subprocess.Process:
        if token is not None:
            (self.folder / "token").write_text(token)
        env = {
            **os.environ,
            "RELIGHT_TASK": "0",
            "RELIGHT_LOCAL_TASK": "0",
            "RELIGHT_NODE": "here",
            "RELIGHT_CHANNEL": f"127.0.0.1:{port or self.port}",
            "RELIGHT_TOKEN_FILE": str(self.folder / "token"),
            "RELIGHT_STEP": step,
            "SLURM_PROCID": "0",
            "SLURM_HOSTFILE": str(self.folder / "hosts-0"),
        }
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "relight.resilience.worker.agent", env=env
        )

    def start(self, code: str, *arguments: str, **more: object) -> None:
        self.channel.lines[0].send(
            {
                "type": "start",
                "generation": 1,
                "argv": [sys.executable, "-c", code, *arguments],
                "cwd": str(self.folder),
                "env": {"GREETING": "hello"},
                "secret_files": {},
                "warm": False,
                "log": str(self.folder / "logs" / "0.log"),
                **more,
            }
        )

    async def printed(self, word: str) -> None:
        """Until the program has said it."""
        log = self.folder / "logs" / "0.log"
        async with asyncio.timeout(PATIENCE_S):
            while not log.exists() or word not in self.log():
                await asyncio.sleep(0.02)

    def log(self) -> str:
        return (self.folder / "logs" / "0.log").read_text()


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    made = Stage(folder)
    made.port = await made.channel.open(folder / "token")
    made.channel.expect("1")
    try:
        yield made
    finally:
        await made.channel.close()


def play(scene: Callable[[Stage], Coroutine[object, object, None]], folder: Path) -> None:
    async def whole() -> None:
        async with stage(folder) as made:
            await scene(made)

    asyncio.run(whole())


async def gone(agent: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(agent.wait(), PATIENCE_S)
