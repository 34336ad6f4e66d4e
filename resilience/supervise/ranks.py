"""Start and stop of a generation: one step of agents, one world, one program per agent.

Agents stay between generations as long as their nodes stay the same, so that a restart in place
needs no new step. An MPI world is bound to its step (PMIx): there every generation gets a new one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.actions import StartRanks, StopRanks
from ..decide.events import (
    Event,
    RankExited,
    RankLost,
    RanksStarted,
    RanksStopped,
    StartFailed,
    ToldToSave,
)
from ..messages import Message, number
from ..run_folder import RunFolder
from ..worker.beats import VARIABLE as BEAT_VARIABLE
from ..worker.beats import beat_of_world
from ..worker.program import tail
from . import container, processes, script
from .channel import AgentLine, Channel
from .cluster import Allocation, Cluster, StepRequest
from .own_saves import command_of
from .rendezvous import Rendezvous

CONNECT_LIMIT_S: Final = 60.0
# Longer than a broken way takes to be noticed (2 s) and made anew: that alone is no loss.
SILENT_LIMIT_S: Final = 5.0
BROKEN_LIMIT_S: Final = 2.0
KILL_LIMIT_S: Final = 10.0
_TURN_S: Final = 0.05
STACKS_S: Final = 2.0  # for programs to print where they are


class Ranks:
    """The ranks of the current generation. Reports by ``emit``; relays what programs say."""

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        emit: Callable[[Event], None],
        on_word: Callable[[int, Message], None],
        on_signal: Callable[[str], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._allocation = allocation
        self._emit = emit
        self._on_word = on_word
        self._on_signal = on_signal
        self._folder = RunFolder(config.run_dir)
        self._channel = Channel(self._on_message)
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._step = 0
        self._step_log = Path()
        self._nodes: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._rank0_port: int | None = None
        self._alive: dict[int, str] = {}
        self._unfinished: set[int] = set()
        self._told = 0  # the last generation that was told to save
        self._stopping = False
        self.generation = 0
        self.started_before = False  # in this attempt, or an earlier one

    @property
    def alive(self) -> frozenset[int]:
        """The ranks whose program runs, as far as is known."""
        return frozenset(self._alive)

    @property
    def world_size(self) -> int:
        """How many ranks this generation has."""
        return self._config.ranks_on(len(self._nodes))

    @property
    def places(self) -> Mapping[int, str]:
        """The node of each rank whose program runs."""
        return self._alive

    def nodes_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """The nodes that carry these ranks."""
        return tuple(dict.fromkeys(self._alive[rank] for rank in ranks if rank in self._alive))

    async def open(self) -> None:
        """Listen for agents."""
        self._port = await self._channel.open(self._token_file)

    async def close(self) -> None:
        """End the agents and the step; nothing of it stays behind."""
        await self._end_step()
        await self._channel.close()
        self._token_file.unlink(missing_ok=True)

    @property
    def _token_file(self) -> Path:
        return self._folder.attempt(self._allocation.attempt) / "token"

    # Start

    def expect(self, generation: int) -> None:
        """A generation was ordered: a stop means this one now, begun or not."""
        self.generation = generation
        self._stopping = False
        self._alive = {}
        self._unfinished.clear()

    async def start(
        self, order: StartRanks, restore: Path | None, restored_step: int | None
    ) -> None:
        """Bring the expected generation up and report RanksStarted or StartFailed."""
        if not self._agents_fit(order.nodes):
            await self._new_step(order.nodes)
        connected = await self._until(self._all_connected, CONNECT_LIMIT_S)
        port = await self._free_port() if connected else None
        if port is None or not self._all_connected():
            self._emit(self._start_failed())
            return
        rendezvous = Rendezvous(
            attempt=self._allocation.attempt,
            generation=order.generation,
            nodes=order.nodes,
            master_address=self._cluster.node_address(order.nodes[0]),
            master_port=port,
            restore=restore,
        )
        argv = await asyncio.to_thread(command_of, self._config, started_before=self.started_before)
        self._launch(rendezvous, argv)
        self._emit(
            RanksStarted(
                generation=order.generation,
                nodes=order.nodes,
                world_size=self.world_size,
                restored_step=restored_step,
                by_resume=argv == self._config.resume,
            )
        )

    @property
    def _step_runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _agents_fit(self, nodes: tuple[str, ...]) -> bool:
        return (
            self._step_runs
            and self._config.mpi is None
            and nodes == self._nodes
            and self._all_connected()
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
            options=container.step_options(self._config),
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
        await processes.end(self._process)
        self._process = None

    def _all_connected(self) -> bool:
        return len(self._channel.lines) == self.world_size

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

    async def _free_port(self) -> int | None:
        self._rank0_port = None
        self._channel.lines[0].send({"type": "need_port"})
        if not await self._until(lambda: self._rank0_port is not None, CONNECT_LIMIT_S):
            return None
        return self._rank0_port

    def _start_failed(self) -> StartFailed:
        here = {line.node for line in self._channel.lines.values()}
        absent = tuple(node for node in self._nodes if node not in here)
        ended = self._process is not None and self._process.returncode is not None
        detail = f"{len(self._channel.lines)} of {self.world_size} agents connected"
        if ended and self._process is not None:
            detail += f"; the step ended with code {self._process.returncode}"
            detail += "".join(f"; {line}" for line in tail(self._step_log)[-3:])
        # When nobody came it is the step that failed, not each of the nodes.
        missing = () if len(absent) == len(self._nodes) > 1 else absent
        return StartFailed(generation=self.generation, missing=missing, detail=detail)

    def _launch(self, rendezvous: Rendezvous, argv: tuple[str, ...]) -> None:
        self.started_before = True
        if self._config.program == "script":
            self._alive[0] = self._allocation.batch_node
            attempt, generation = rendezvous.attempt, rendezvous.generation
            self.tell(script.start_order(self._config, argv, attempt, generation))
            return
        restart = self._config.restart
        warm = restart.warm and self._config.mpi is None and self._config.container is None
        for task, line in sorted(self._channel.lines.items()):
            log = self._folder.rank_log(self._allocation.attempt, rendezvous.generation, task)
            self._alive[task] = line.node
            line.send(
                {
                    "type": "start",
                    "generation": rendezvous.generation,
                    "argv": list(container.program_of(self._config, argv)),
                    "cwd": str(self._config.working_dir),
                    "env": rendezvous.environment(self._config, task),
                    "secret_files": dict(self._config.secret_files),
                    "log": str(log),
                    "watched": restart.silence_s is not None or restart.idle_s is not None,
                    "warm": warm,
                }
            )

    # Stop

    async def stop(self, order: StopRanks) -> None:
        """Kill all programs of the generation; RanksStopped follows, whatever the nodes do."""
        generation = self.generation
        self._stopping = True
        if order.stacks:
            self.tell({"type": "stacks", "generation": generation})
        pause_s = STACKS_S if order.stacks else order.patience_s
        give_up_at = time.monotonic() + pause_s
        while self._alive and generation == self.generation and time.monotonic() < give_up_at:
            await asyncio.sleep(_TURN_S)
        if generation != self.generation:
            return  # all had ended, and the next one has begun
        self.tell({"type": "stop", "generation": generation, "signal": "SIGKILL"})
        self._report_if_empty()
        await asyncio.sleep(KILL_LIMIT_S)
        if generation == self.generation:
            for rank in list(self._alive):
                self._lose(rank, f"not ended {KILL_LIMIT_S:.0f} s after SIGKILL")

    def let_end(self) -> None:
        """The ranks were told to end by themselves; RanksStopped follows when they have."""
        self._stopping = True
        self._report_if_empty()

    def terminate(self) -> None:
        """Tell programs that do not speak the protocol to save, or to end."""
        if self._config.program == "script":
            return  # Slurm has sent it one
        name = self._config.checkpoint.signal or "SIGTERM"
        self.tell({"type": "stop", "generation": self.generation, "signal": name})

    def signal(self, name: str) -> None:
        """Send every program a signal."""
        self.tell({"type": "signal", "signal": name})
        self._signalled(name)

    def tell(self, message: Message) -> None:
        """A message to every agent."""
        self._channel.broadcast(message)

    def tell_programs(self, body: Message) -> None:
        """A message to every rank's program."""
        self._channel.broadcast({"type": "rank", "body": body})

    def look_for_silence(self) -> None:
        """Hold agents for lost that have not been heard for too long."""
        others_s = SILENT_LIMIT_S * beat_of_world(self.world_size)
        broken_s = BROKEN_LIMIT_S if self._step_runs else 0.0
        for line in self._channel.silent(SILENT_LIMIT_S, others_s, broken_s):
            self._channel.drop(line)
            if line.broken_at is not None:
                self._lose(line.task, "the connection to its agent broke, and it did not come back")
            else:
                limit_s = SILENT_LIMIT_S if line.leads else others_s
                self._lose(line.task, f"its agent was silent for {limit_s:.0f} s")

    def forgive_silence(self) -> None:
        """Nobody could be heard for a while."""
        self._channel.forgive_silence()

    # What agents say

    def _on_message(self, line: AgentLine, message: Message) -> None:
        match message["type"]:
            case "hello":
                self._changed.set()
            case "port":
                self._rank0_port = number(message, "port")
                self._changed.set()
            case "signalled":
                self._signalled(str(message.get("signal")))
                self._on_signal(str(message.get("signal")))
            case "rank":
                body = message.get("body")
                if isinstance(body, dict) and message.get("generation") == self.generation:
                    self._note_progress(line.task, body)
                    self._on_word(line.task, body)
            case "exited":
                self._on_exited(line, message)

    def _signalled(self, name: str) -> None:
        if name == self._config.checkpoint.signal and self._told != self.generation:
            self._told = self.generation
            self._emit(ToldToSave(generation=self.generation, signal=name))

    def _note_progress(self, rank: int, word: Message) -> None:
        if word["type"] == "restored":
            self._unfinished.add(rank)
        elif word["type"] == "finished":
            self._unfinished.discard(rank)

    def _on_exited(self, line: AgentLine, message: Message) -> None:
        if message.get("generation") != self.generation or line.task not in self._alive:
            return
        del self._alive[line.task]
        tail, code, signal_name = message.get("tail"), message.get("code"), message.get("signal")
        self._emit(
            RankExited(
                generation=self.generation,
                rank=line.task,
                node=line.node,
                code=code if isinstance(code, int) else None,
                signal=signal_name if isinstance(signal_name, str) else None,
                stopped=message.get("stopped") is True,
                unfinished=line.task in self._unfinished,
                tail=tuple(str(entry) for entry in tail) if isinstance(tail, list) else (),
                max_rss_bytes=number(message, "max_rss_bytes"),
            )
        )
        self._report_if_empty()

    def _lose(self, rank: int, detail: str) -> None:
        node = self._alive.pop(rank, None)
        if node is None:
            return
        self._emit(RankLost(generation=self.generation, rank=rank, node=node, detail=detail))
        self._report_if_empty()

    def _report_if_empty(self) -> None:
        if self._stopping and not self._alive:
            self._stopping = False
            self._emit(RanksStopped(generation=self.generation))
