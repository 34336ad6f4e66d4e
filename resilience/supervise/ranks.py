"""Start and stop of a generation: one world, one program per agent (``agents``)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.actions import StartRanks, StopRanks
from ..decide.events import (
    Event,
    GpuMemoryStayed,
    RankExited,
    RankLost,
    RanksStarted,
    RanksStopped,
    ToldToSave,
)
from ..messages import Message, number
from ..place import place_of
from ..run_folder import RunFolder
from . import node_command, script, slurm_place
from .agents import Agents
from .channel import AgentLine
from .cluster import Allocation, Cluster
from .own_saves import command_of
from .partners import Partners
from .rendezvous import Rendezvous

_log: Final = logging.getLogger(__name__)
KILL_LIMIT_S: Final = 10.0
_TURN_S: Final = 0.05
STACKS_S: Final = 2.0  # for programs to print where they are


class Ranks:
    """The ranks of the current generation. Reports by ``emit``; relays what programs say.

    ``healthy`` are the nodes that may carry ranks, as far as they answer: those that do not carry
    any are made ready for it.
    """

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        emit: Callable[[Event], None],
        on_word: Callable[[int, Message], None],
        on_signal: Callable[[str], None],
        partners: Partners,
        healthy: Callable[[], tuple[str, ...]],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._allocation = allocation
        self._emit = emit
        self._on_word = on_word
        self._on_signal = on_signal
        self._partners = partners
        self._healthy = healthy
        self._folder = RunFolder(config.run_dir)
        self._agents = Agents(config, cluster, allocation, self._on_message)
        self._alive: dict[int, str] = {}
        self._unfinished: set[int] = set()
        self._anyway = asyncio.Event()
        self._told = 0  # the last generation that was told to save
        self._stopping = False
        self._rank0_order: Message = {}
        self.generation = 0
        self.started_before = False  # in this attempt, or an earlier one

    @property
    def alive(self) -> frozenset[int]:
        """The ranks whose program runs, as far as is known."""
        return frozenset(self._alive)

    @property
    def world_size(self) -> int:
        """How many ranks this generation has."""
        return self._agents.world_size

    @property
    def places(self) -> Mapping[int, str]:
        """The node of each rank whose program runs."""
        return self._alive

    @property
    def absent(self) -> tuple[str, ...]:
        """The nodes that ranks are to run on, and from which no agent has come."""
        return self._agents.absent

    @property
    def have_finished(self) -> bool:
        """Whether those that are alive have no steps before them."""
        return not self._unfinished & self._alive.keys()

    @property
    def with_agents(self) -> frozenset[str]:
        """The nodes with an agent that speaks."""
        return frozenset(line.node for line in self._agents.lines.values())

    def nodes_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """The nodes that carry these ranks."""
        return tuple(dict.fromkeys(self._alive[rank] for rank in ranks if rank in self._alive))

    async def close(self) -> None:
        """End the agents and the step; nothing of it stays behind."""
        await self._agents.close()

    # Start

    def expect(self, generation: int) -> None:
        """A generation was ordered: a stop means this one now, begun or not."""
        self.generation = generation
        self._stopping = False
        self._alive = {}
        self._unfinished.clear()
        self._anyway.clear()

    def start_anyway(self) -> None:
        """The start goes on, though memory of GPUs is held."""
        self._anyway.set()

    async def start(
        self, order: StartRanks, restore: Path | None, restored_step: int | None
    ) -> None:
        """Bring the expected generation up and report RanksStarted or StartFailed."""
        connected = await self._agents.bring_up(order.nodes)
        ranks_have_ended = order.generation > 1 and self._config.program == "ranks"
        if connected and ranks_have_ended and (held := await self._agents.gpu_memory_held()):
            self._emit(GpuMemoryStayed(generation=order.generation, held=held))
            await self._anyway.wait()  # unless they are started elsewhere
        if connected:
            lines, address_of = self._agents.lines, self._cluster.node_address
            await self._partners.prepare(order.generation, order.nodes, lines, address_of)
        argv = await asyncio.to_thread(command_of, self._config, started_before=self.started_before)
        port = await self._agents.free_port() if connected else None
        if port is None or not self._agents.all_connected:
            self._emit(self._agents.start_failed(self.generation))
            return
        rendezvous = Rendezvous(
            attempt=self._allocation.attempt,
            generation=order.generation,
            nodes=order.nodes,
            master_address=self._cluster.node_address(order.nodes[0]),
            master_port=port,
            restore=restore,
        )  # nothing is waited for before the launch: whose agent is lost meanwhile would be no rank
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

    def _launch(self, rendezvous: Rendezvous, argv: tuple[str, ...]) -> None:
        self.started_before = True
        if self._config.program == "script":
            self._alive[0] = self._allocation.batch_node
            attempt, generation = rendezvous.attempt, rendezvous.generation
            self.tell(script.start_order(self._config, argv, attempt, generation))
            return
        addresses = {rank: line.address for rank, line in self._agents.lines.items()}
        for rank, line in sorted(self._agents.lines.items()):
            self._alive[rank] = line.node
            line.send(self._start_order(rendezvous, rank, argv, addresses))

    def _start_order(
        self,
        rendezvous: Rendezvous,
        rank: int,
        argv: tuple[str, ...],
        addresses: Mapping[int, str],
    ) -> Message:
        place = place_of(self._config, rank)
        per_node = self._config.command_per == "node"
        writer = rank - place.local_rank if per_node else rank
        log = self._folder.rank_log(self._allocation.attempt, rendezvous.generation, writer)
        order = rendezvous.start_order(self._config, rank, argv, log)
        if self._agents.of_several_steps:
            order = {**order, "slurm": slurm_place.variables(self._config, rank, rendezvous.nodes)}
        if per_node:
            return node_command.of_node(self._config, order, place, addresses)
        if rank == 0:
            self._rank0_order = order
            spares = set(self._allocation.nodes) - set(rendezvous.nodes)
            return {**order, "tell_imports": bool(spares) and order["warm"] is True}
        return order

    async def stand_by(self, modules: object) -> None:
        """Make spares ready to be the next generation, which imports what this one has."""
        order = {name: self._rank0_order[name] for name in ("argv", "env")}
        try:
            await self._agents.stand_by(
                self._healthy(), {"type": "get_ready", **order, "modules": modules}
            )
        except OSError as error:
            _log.warning("spares start cold, no agents can be started there: %s", error)

    # Stop

    async def stop(self, order: StopRanks, generation: int) -> None:
        """Kill all programs of the generation; RanksStopped follows, whatever the nodes do."""
        if generation != self.generation:
            return  # all had ended before, and the next one is ordered
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

    def signal(self, name: str, *, unless_heard: bool = False) -> None:
        """Send every program a signal, but those whose agents were sent it, too."""
        self.tell({"type": "signal", "signal": name, "unless_heard": unless_heard})
        self._signalled(name)

    def tell(self, message: Message) -> None:
        """A message to every agent."""
        self._agents.tell(message)

    def tell_programs(self, body: Message) -> None:
        """A message to every rank's program."""
        self._agents.tell({"type": "rank", "body": body})

    def look_for_silence(self) -> list[int]:
        """Hold agents for lost that have not been heard for too long; whose they were, also of
        ranks that have ended before."""
        silent = list(self._agents.drop_silent())
        for rank, detail in silent:
            self._lose(rank, detail)
        return [rank for rank, _ in silent]

    def forgive_silence(self) -> None:
        """Nobody could be heard for a while."""
        self._agents.forgive_silence()

    # What agents say

    def _on_message(self, line: AgentLine, message: Message) -> None:
        match message["type"]:
            case "signalled":
                self._signalled(str(message.get("signal")))
                self._on_signal(str(message.get("signal")))
            case "rank":
                body = message.get("body")
                if isinstance(body, dict) and message.get("generation") == self.generation:
                    self._note_progress(line.rank, body)
                    self._on_word(line.rank, body)
            case "depot" | "took" | "not_sent":
                self._partners.heard(line, message)
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
        if message.get("generation") != self.generation or line.rank not in self._alive:
            return
        del self._alive[line.rank]
        tail, code, signal_name = message.get("tail"), message.get("code"), message.get("signal")
        self._emit(
            RankExited(
                generation=self.generation,
                rank=line.rank,
                node=line.node,
                code=code if isinstance(code, int) else None,
                signal=signal_name if isinstance(signal_name, str) else None,
                stopped=message.get("stopped") is True,
                unfinished=line.rank in self._unfinished,
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
