"""The step of agents: brought up on the nodes of a generation, kept for the next one, ended.

Agents stay between generations as long as their nodes stay the same, so that a restart in place
needs no new step. An MPI world is bound to its step (PMIx): there every generation gets a new one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.events import StartFailed
from ..messages import Message, number, text
from ..run_folder import RunFolder
from ..worker.beats import VARIABLE as BEAT_VARIABLE
from ..worker.beats import beat_of_world
from ..worker.program import tail
from . import container, node_command, processes, script
from .channel import AgentLine, Channel
from .cluster import Allocation, Cluster, StepRequest

CONNECT_LIMIT_S: Final = 60.0
# Longer than a broken way takes to be noticed (2 s) and made anew: that alone is no loss.
SILENT_LIMIT_S: Final = 5.0
BROKEN_LIMIT_S: Final = 2.0
GPU_LIMIT_S: Final = 10  # for programs that have ended to give the memory of their GPUs back
_ANSWER_S: Final = 10.0
_NO_PATIENCE_S: Final = 0.2


class Agents:
    """One step of agents at a time. Gives what they say of their programs to ``on_message``."""

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        on_message: Callable[[AgentLine, Message], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._allocation = allocation
        self._on_word = on_message
        self._folder = RunFolder(config.run_dir)
        self._channel = Channel(self._on_message)
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._step = 0
        self._step_log = Path()
        self._nodes: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._rank0_port: int | None = None
        self._gpu_memory: dict[int, str] = {}  # what each agent says of it

    @property
    def world_size(self) -> int:
        """How many agents the step has, one for each rank."""
        return self._config.ranks_on(len(self._nodes))

    @property
    def lines(self) -> Mapping[int, AgentLine]:
        """The agents by task."""
        return self._channel.lines

    @property
    def all_connected(self) -> bool:
        return len(self._channel.lines) == self.world_size

    @property
    def absent(self) -> tuple[str, ...]:
        """The nodes of the step from which no agent has come."""
        here = {line.node for line in self._channel.lines.values()}
        return tuple(node for node in self._nodes if node not in here)

    async def open(self) -> None:
        """Listen for agents."""
        self._port = await self._channel.open(self._token_file)

    async def close(self) -> None:
        """End the agents and the step; nothing of it stays behind."""
        await self._end_step()
        await self._channel.close()
        self._token_file.unlink(missing_ok=True)

    async def bring_up(self, nodes: tuple[str, ...]) -> bool:
        """Have an agent for each rank on these nodes; False when they do not come in time."""
        if not self._fit(nodes):
            await self._new_step(nodes)
        return await self._until(lambda: self.all_connected, CONNECT_LIMIT_S)

    async def free_port(self) -> int | None:
        """A port that is free where rank 0 will be; None when its agent does not say."""
        self._rank0_port = None
        agent = self.lines.get(0)  # lost, maybe, while something else was waited for
        if agent is not None:
            agent.send({"type": "need_port"})
            await self._until(self._rank0_has_said, CONNECT_LIMIT_S)
        return self._rank0_port

    def _rank0_has_said(self) -> bool:
        return self._rank0_port is not None or 0 not in self.lines

    async def gpu_memory_held(self) -> Mapping[str, str]:
        """Wait for GPUs to give memory back that programs had which have ended.

        The nodes that did not, with what is held there. Who does not answer says nothing of it.
        """
        self._gpu_memory.clear()
        self.tell({"type": "gpus", "limit_s": GPU_LIMIT_S, "gpus": self._config.gpus_per_node})
        limit_s = GPU_LIMIT_S + _ANSWER_S
        await self._until(lambda: self._gpu_memory.keys() >= self.lines.keys(), limit_s)
        held: dict[str, dict[str, None]] = {}  # agents of a node see the same, or their own
        for task, line in sorted(self.lines.items()):
            if said := self._gpu_memory.get(task):
                held.setdefault(line.node, {})[said] = None
        return {node: "; ".join(said) for node, said in held.items()}

    def start_failed(self, generation: int) -> StartFailed:
        """Which agents did not come, as far as anybody can tell."""
        absent = self.absent
        ended = self._process is not None and self._process.returncode is not None
        detail = f"{len(self._channel.lines)} of {self.world_size} agents connected"
        if ended and self._process is not None:
            detail += f"; the step ended with code {self._process.returncode}"
            detail += "".join(f"; {line}" for line in tail(self._step_log)[-3:])
        # When nobody came it is the step that failed, not each of the nodes.
        missing = () if len(absent) == len(self._nodes) > 1 else absent
        return StartFailed(generation=generation, missing=missing, detail=detail)

    def tell(self, message: Message) -> None:
        """A message to every agent."""
        self._channel.broadcast(message)

    def drop_silent(self) -> Iterator[tuple[int, str]]:
        """Forget the agents that have not been heard for too long: their tasks, and what is said
        of each."""
        others_s = SILENT_LIMIT_S * beat_of_world(self.world_size)
        broken_s = BROKEN_LIMIT_S if self._step_runs else 0.0
        for line in self._channel.silent(SILENT_LIMIT_S, others_s, broken_s):
            self._channel.drop(line)
            self._changed.set()  # nobody waits for its word any more
            if line.broken_at is not None:
                yield line.task, "the connection to its agent broke, and it did not come back"
            else:
                limit_s = SILENT_LIMIT_S if line.leads else others_s
                yield line.task, f"its agent was silent for {limit_s:.0f} s"

    def forgive_silence(self) -> None:
        """Nobody could be heard for a while."""
        self._channel.forgive_silence()

    @property
    def _token_file(self) -> Path:
        return self._folder.attempt(self._allocation.attempt) / "token"

    @property
    def _step_runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _fit(self, nodes: tuple[str, ...]) -> bool:
        return (
            self._step_runs
            and self._config.mpi is None
            and nodes == self._nodes
            and self.all_connected
        )

    async def _new_step(self, nodes: tuple[str, ...]) -> None:
        await self._end_step(stay=nodes)
        self._step += 1
        self._nodes = nodes
        self._channel.expect(str(self._step))
        self._step_log = self._folder.logs(self._allocation.attempt) / f"step-{self._step}.log"
        env = {
            "RELIGHT_CHANNEL": f"{self._allocation.supervisor_host}:{self._port}",
            "RELIGHT_TOKEN_FILE": str(self._token_file),
            "RELIGHT_STEP": str(self._step),
            BEAT_VARIABLE: str(beat_of_world(self.world_size)),
        }
        if self._config.program == "script":
            command = script.agent_command(self._allocation, self._port, env)
            self._process = await processes.start_beside(command)
            return
        python = container.interpreter(self._config, sys.executable)
        request = StepRequest(
            name="ranks",
            nodes=nodes,
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
            output=self._step_log,
        )
        command = await asyncio.to_thread(self._cluster.step_command, request)
        self._process = await processes.start(command, self._step_log)

    async def _end_step(self, stay: tuple[str, ...] = ()) -> None:
        """On nodes that ``stay``, agents leave what is in the tier to those that come."""
        if self._process is None:
            return
        for line in self._channel.lines.values():
            line.send({"type": "quit", "keep": line.node in stay})
        if self.all_connected:
            await processes.end(self._process)
        else:  # the command waits for tasks on nodes that are gone, and does not end by itself
            await self._channel.all_ended(processes.POLITE_S)
            await processes.end(self._process, patience_s=_NO_PATIENCE_S)
        self._process = None

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition that messages bring about; the end of the step ends the wait."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        try:
            while not condition():
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait(
                    (changed, ended),
                    timeout=deadline - loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changed.cancel()
                if not condition() and (ended.done() or loop.time() >= deadline):
                    return False
            return True
        finally:
            ended.cancel()

    def _on_message(self, line: AgentLine, message: Message) -> None:
        match message["type"]:
            case "hello":
                self._changed.set()
            case "port":
                self._rank0_port = number(message, "port")
                self._changed.set()
            case "gpus":
                self._gpu_memory[line.task] = text(message, "held")
                self._changed.set()
            case _:
                self._on_word(line, message)
