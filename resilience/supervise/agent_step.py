"""One step of agents: a command that runs one for each rank that its nodes may carry, and the
channel to them."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from ..config import RunConfig
from ..messages import Message
from ..run_folder import RunFolder
from ..worker.beats import VARIABLE as BEAT_VARIABLE
from ..worker.beats import beat_of_world
from . import container, node_command, processes, script
from .channel import AgentLine, Channel
from .cluster import Allocation, Cluster, StepRequest

_log: Final = logging.getLogger(__name__)
# Longer than a broken way takes to be noticed (2 s) and made anew: that alone is no loss.
SILENT_LIMIT_S: Final = 5.0
BROKEN_LIMIT_S: Final = 2.0
_NO_PATIENCE_S: Final = 0.2


class AgentStep:
    """Agents on ``nodes``; what they say goes to ``on_message``.

    ``token`` is that of the attempt: agents of one step know those of another by it.

    Attributes:
        left: the nodes on which an agent was lost, did not come, or is not wanted any more.
        begun_at: when it was begun, by the monotonic clock.
    """

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        number: int,
        nodes: tuple[str, ...],
        token: str,
        on_message: Callable[[AgentLine, Message], None],
    ) -> None:
        self.nodes = nodes
        self.number = number
        self.left: set[str] = set()
        self.begun_at = time.monotonic()
        self.log = RunFolder(config.run_dir).logs(allocation.attempt) / f"step-{number}.log"
        self._config = config
        self._cluster = cluster
        self._allocation = allocation
        self._token_file = RunFolder(config.run_dir).attempt(allocation.attempt) / f"token-{number}"
        self._on_message = on_message
        self._channel = Channel(self._hear, token)
        self._process: asyncio.subprocess.Process | None = None
        self._is_ending = False

    @property
    def size(self) -> int:
        """How many agents it has when all are there."""
        return self._config.ranks_on(len(self.nodes))

    @property
    def lines(self) -> Mapping[int, AgentLine]:
        """Its agents, by the numbers of their tasks."""
        return self._channel.lines

    @property
    def all_connected(self) -> bool:
        return len(self._channel.lines) == self.size

    @property
    def runs(self) -> bool:
        ended = self._process is None or self._process.returncode is not None
        return not ended and not self._is_ending

    @property
    def exit_code(self) -> int | None:
        """None before its command has ended."""
        return self._process.returncode if self._process is not None else None

    def lacking(self, nodes: Collection[str]) -> set[str]:
        """Those of its nodes among these from which not all agents are there."""
        if self.all_connected:
            return set()
        mine = set(self.nodes).intersection(nodes)
        if self._config.components:  # each has another number of them on a node
            return mine
        there = Counter(line.node for line in self._channel.lines.values())
        return {node for node in mine if there[node] < self._config.tasks_per_node}

    async def begin(self) -> None:
        """Listen for the agents, and have them started. Raises OSError."""
        port = await self._channel.open(self._token_file)
        self._channel.expect(str(self.number))
        env = {
            "RELIGHT_CHANNEL": f"{self._allocation.supervisor_host}:{port}",
            "RELIGHT_TOKEN_FILE": str(self._token_file),
            "RELIGHT_STEP": str(self.number),
            BEAT_VARIABLE: str(beat_of_world(self.size)),
        }
        if self._config.program == "script":
            command = script.agent_command(self._allocation, port, env)
            self._process = await processes.start_beside(command)
            return
        python = container.interpreter(self._config, sys.executable)
        request = StepRequest(
            name="ranks",
            nodes=self.nodes,
            tasks_per_node=self._config.tasks_per_node,
            cpus_per_task=self._config.cpus_per_task,
            argv=(python, "-P", "-m", "relight.resilience.worker.agent"),
            env=env,
            mpi=self._config.mpi,
            options=(
                *container.step_options(self._config),
                *node_command.step_options(self._config),
            ),
            components=self._config.components,
            output=self.log,
        )
        command = await asyncio.to_thread(self._cluster.step_command, request)
        self._process = await processes.start(command, self.log)

    async def ended(self) -> None:
        """Wait for the end of its command."""
        assert self._process is not None
        await self._process.wait()

    def tell(self, message: Message) -> None:
        """A message to every agent of it."""
        self._channel.broadcast(message)

    def dismiss(self, line: AgentLine) -> None:
        """Let one agent end, while others go on."""
        self.left.add(line.node)
        line.send({"type": "quit", "keep": False})
        self._channel.drop(line)

    async def end(self, stay: Collection[str] = ()) -> None:
        """End the agents and their command; nothing of it stays behind.

        On nodes that ``stay``, agents leave what is in the tier to those that come.
        """
        self._is_ending = True
        if self._process is not None:
            for line in self._channel.lines.values():
                line.send({"type": "quit", "keep": line.node in stay})
            if self.all_connected:
                await processes.end(self._process)
            else:  # the command waits for tasks on nodes that are gone, and does not end by itself
                await self._channel.all_ended(processes.POLITE_S)
                await processes.end(self._process, patience_s=_NO_PATIENCE_S)
        await self._channel.close()
        try:
            self._token_file.unlink(missing_ok=True)
        except OSError as error:  # a disk that is away keeps no other step from its end
            _log.warning("the token of a step that has ended stays: %s", error)

    def drop_silent(self) -> Iterator[tuple[AgentLine, str]]:
        """Forget the agents that have not been heard for too long, with what is said of each."""
        others_s = SILENT_LIMIT_S * beat_of_world(self.size)
        broken_s = BROKEN_LIMIT_S if self.runs else 0.0
        for line in self._channel.silent(SILENT_LIMIT_S, others_s, broken_s):
            self._channel.drop(line)
            self.left.add(line.node)
            if line.broken_at is not None:
                yield line, "the connection to its agent broke, and it did not come back"
            else:
                limit_s = SILENT_LIMIT_S if line.leads else others_s
                yield line, f"its agent was silent for {limit_s:.0f} s"

    def forgive_silence(self) -> None:
        """Nobody could be heard for a while."""
        self._channel.forgive_silence()

    def _hear(self, line: AgentLine, message: Message) -> None:
        if not self._is_ending:  # else the signals are ours
            self._on_message(line, message)
