"""Steps whose agents are played in this process, as far as a start needs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from relight.resilience.messages import Message, decode, encode
from relight.resilience.supervise.cluster import Cluster, Command, NodeCondition, StepRequest


class PretendAgents:
    """A cluster with two agents on each node of a step, whose command ends when all of them have.

    ``held``: what the agent of a task says of the memory of GPUs; of None it dies when asked.
    """

    def __init__(self, held: Mapping[int, str | None] | None = None) -> None:
        self.steps: list[StepRequest] = []
        self.told: dict[tuple[str, int], list[Message]] = {}
        self.tokens: set[str] = set()
        self.dead: set[str] = set()  # nodes from which no agent comes
        self.late: dict[str, asyncio.Event] = {}  # nodes whose agents come when it is set
        self._lines: dict[str, asyncio.StreamWriter] = {}
        self._held = held or {}
        self._loop = asyncio.get_running_loop()
        self._agents: dict[asyncio.Task[None], str] = {}
        self._ends: list[asyncio.Task[None]] = []
        self._writers: list[int] = []

    @property
    def cluster(self) -> Cluster:
        return cast(Cluster, self)

    def node_conditions(self, nodes: Sequence[str]) -> Mapping[str, NodeCondition]:
        return dict.fromkeys(nodes, "up")

    def node_address(self, _node: str) -> str:
        return "127.0.0.1"

    def step_command(self, request: StepRequest) -> Command:
        """Called from another thread, and for a probe by the loop."""
        if request.name == "probe":
            return Command(("false",) if self.dead.intersection(request.nodes) else ("true",), {})
        pipe = Path(request.env["RELIGHT_TOKEN_FILE"]).with_suffix(".pipe")
        os.mkfifo(pipe)
        writer = os.open(pipe, os.O_RDWR)
        self._loop.call_soon_threadsafe(self._begin, request, writer)
        return Command(("head", "--bytes=1", str(pipe)), {})

    def nodes_of_steps(self) -> list[tuple[str, ...]]:
        return [step.nodes for step in self.steps]

    def told_to(self, node: str, kind: str) -> list[Message]:
        """What the agents of a node were told by this word."""
        return [word for at in (0, 1) for word in self.told[node, at] if word["type"] == kind]

    async def lose(self, node: str) -> None:
        """All agents there are gone at once."""
        lost = [agent for agent, where in self._agents.items() if where == node]
        for agent in lost:
            agent.cancel()
        await asyncio.gather(*lost, return_exceptions=True)

    def signal(self, node: str) -> None:
        """An agent there gets a SIGTERM."""
        self._lines[node].write(encode({"type": "signalled", "signal": "SIGTERM"}))

    async def ended(self) -> None:
        """Until no agent is there."""
        await asyncio.gather(*self._ends)
        for writer in self._writers:
            os.close(writer)

    def _begin(self, request: StepRequest, writer: int) -> None:
        self.steps.append(request)
        mine = []
        for task in range(2 * len(request.nodes)):
            node = request.nodes[task // 2]
            if node not in self.dead:
                agent = asyncio.create_task(self._play(request, node, task))
                self._agents[agent] = node
                mine.append(agent)

        async def end() -> None:
            await asyncio.gather(*mine, return_exceptions=True)
            os.write(writer, b".")

        self._writers.append(writer)
        self._ends.append(asyncio.create_task(end()))

    async def _play(self, request: StepRequest, node: str, task: int) -> None:
        if node in self.late:
            await self.late[node].wait()
        told = self.told[node, task % 2] = []
        token = Path(request.env["RELIGHT_TOKEN_FILE"]).read_text()
        self.tokens.add(token)
        port = int(request.env["RELIGHT_CHANNEL"].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._lines[node] = writer

        def say(**message: object) -> None:
            writer.write(encode(message))

        with contextlib.closing(writer):
            place = {"node": node, "task": task, "local_task": task % 2}
            say(type="hello", token=token, step=request.env["RELIGHT_STEP"], pid=1, got=0, **place)
            while line := await reader.readline():
                told.append(decode(line))
                match told[-1]["type"]:
                    case "need_port":
                        say(type="port", port=1)
                    case "gpus" if self._held.get(task, "") is None:
                        break
                    case "gpus":
                        say(type="gpus", held=self._held.get(task, ""))
                    case "quit":
                        break
