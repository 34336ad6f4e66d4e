"""Ten thousand pretended agents with their programs, for ``scale.py``: the step of ranks.

They speak as real ones do (``relight.resilience.messages``), a quarter of them in each of four
processes. Environment: that of an agent, and ``SCALE_NODES``, ``SCALE_TASKS``, ``SCALE_STEP_S``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from relight.resilience.messages import Message, decode, encode, number
from relight.resilience.numbered import Numbered
from relight.resilience.worker.agent import free_port
from relight.resilience.worker.beats import agent_beat_s, beat_s

PROCESSES = 4
LINES_AT_ONCE = 100  # connections that one process opens at the same time


class Agent(asyncio.Protocol):
    """One agent whose program does a step each ``step_s``."""

    def __init__(self, task: int, tasks_per_node: int, step_s: float) -> None:
        self.task = task
        self.node, self.local_task = divmod(task, tasks_per_node)
        self.step_s = step_s
        self.ended = asyncio.get_running_loop().create_future()
        self.began = 0.0
        self.held: float | None = None
        self.stop_at: int | None = None
        self.generation = 0
        self.rest = b""
        self.numbered = Numbered()
        self.agent_beat_s = agent_beat_s(os.environ, leader=self.local_task == 0)
        self.rank_beat_s = beat_s(os.environ)
        self.spoken = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.mention(
            type="hello",
            got=self.numbered.heard,
            token=Path(os.environ["RELIGHT_TOKEN_FILE"]).read_text(),
            step=os.environ["RELIGHT_STEP"],
            task=self.task,
            local_task=self.local_task,
            node=f"n{self.node:04}",
            pid=1,
        )
        self.every(self.agent_beat_s, self.beat)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self.timers:
            timer.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            message = decode(line)
            if self.numbered.is_new(message):
                self.obey(message)

    def beat(self) -> None:
        if time.monotonic() - self.spoken >= self.agent_beat_s:
            self.transport.write(self.numbered.beat())

    def tell(self, **message: object) -> None:
        self.spoken = time.monotonic()
        self.transport.write(self.numbered.say(encode(message)))

    def mention(self, **message: object) -> None:
        """What its next one makes void, or begins a line."""
        self.spoken = time.monotonic()
        self.transport.write(encode({**message, **self.numbered.confirmation()}))

    def say(self, **body: object) -> None:
        """What the program says."""
        self.tell(type="rank", generation=self.generation, body=body)

    def say_step(self) -> None:
        body = {"type": "beat", "step": self.step}
        self.mention(type="rank", generation=self.generation, body=body)

    def every(self, pause_s: float, act: object) -> None:
        """Again and again, out of step with the others."""
        assert callable(act)
        loop = asyncio.get_running_loop()
        slot = len(self.timers)

        def again() -> None:
            act()
            self.timers[slot] = loop.call_later(pause_s, again)

        first_s = pause_s * (self.task * 0.618 % 1)
        self.timers.append(loop.call_later(first_s, again))

    @property
    def step(self) -> int:
        return int((time.monotonic() - self.began) / self.step_s)

    def obey(self, order: Message) -> None:
        match order["type"]:
            case "need_port":
                self.tell(type="port", port=free_port())
            case "start":
                self.generation = number(order, "generation")
                self.began = time.monotonic()
                self.tell(type="started", generation=self.generation, pid=2)
                self.say(type="joined", rank=self.task, pid=2)
                self.say(type="restored", step=0)
                self.every(self.rank_beat_s, self.say_step)
            case "rank":
                body = order["body"]
                assert isinstance(body, dict)
                self.hear(body)
            case "stop":
                self.exit(signal="SIGKILL", stopped=True)
            case "quit":
                self.transport.close()

    def hear(self, body: Message) -> None:
        match body["type"]:
            case "hold":
                self.say(type="held", ask=body["ask"], step=self.step)
            case "stop_at":
                self.exit(code=75, stopped=False)

    def exit(self, *, code: int | None = None, signal: str | None = None, stopped: bool) -> None:
        self.tell(
            type="exited",
            generation=self.generation,
            code=code,
            signal=signal,
            stopped=stopped,
            tail=[],
            max_rss_bytes=0,
        )


async def serve(tasks: range, tasks_per_node: int, step_s: float) -> None:
    host, _, port = os.environ["RELIGHT_CHANNEL"].rpartition(":")
    loop = asyncio.get_running_loop()
    few = asyncio.Semaphore(LINES_AT_ONCE)

    async def one(task: int) -> None:
        async with few:
            _, agent = await loop.create_connection(
                lambda: Agent(task, tasks_per_node, step_s), host, int(port)
            )
        await agent.ended

    await asyncio.gather(*(one(task) for task in tasks))


def main() -> int:
    tasks_per_node = int(os.environ["SCALE_TASKS"])
    world_size = int(os.environ["SCALE_NODES"]) * tasks_per_node
    step_s = float(os.environ["SCALE_STEP_S"])
    children = []
    for part in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            tasks = range(part * world_size // PROCESSES, (part + 1) * world_size // PROCESSES)
            asyncio.run(serve(tasks, tasks_per_node, step_s))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
