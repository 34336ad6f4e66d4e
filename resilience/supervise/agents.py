"""The agents of a run: brought up on the nodes of a generation, kept for the next one, ended.

Agents stay between generations: a restart needs a new step only for the nodes that have none. So a
spare has agents before it is needed (:meth:`Agents.stand_by`). An MPI world is bound to its step
(PMIx): there every generation gets a new one; components are started together, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from ..config import RunConfig
from ..decide.events import StartFailed
from ..messages import Message, number, text
from ..place import place_of
from ..worker.program import tail
from .agent_step import AgentStep
from .channel import NO_RANK, AgentLine
from .cluster import Allocation, Cluster
from .nodes import probe

_log: Final = logging.getLogger(__name__)
CONNECT_LIMIT_S: Final = 60.0
LATE_S: Final = 10.0  # then nodes whose agents lack are asked, while those of others are there
GPU_LIMIT_S: Final = 10  # for programs that have ended to give the memory of their GPUs back
_ANSWER_S: Final = 10.0


class Agents:
    """The steps of agents. Gives what those with a rank say of it to ``on_message``, and of signals
    what any of them says: Slurm tells steps of a preemption, ranks or not."""

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
        self._steps: list[AgentStep] = []
        self._begun = 0  # steps, in all
        self._token = secrets.token_hex(16)
        self._changing = asyncio.Lock()  # which steps there are
        self._nodes: tuple[str, ...] = ()
        self._lines: dict[int, AgentLine] = {}
        self._spares: frozenset[str] = frozenset()  # nodes with agents that have no rank
        self._get_ready: Message = {}  # what they are told
        self._changed = asyncio.Event()
        self._rank0_port: int | None = None
        self._gpu_memory: dict[int, str] = {}  # what the agent of each rank says of it

    @property
    def world_size(self) -> int:
        """How many ranks the generation has."""
        return self._config.ranks_on(len(self._nodes))

    @property
    def lines(self) -> Mapping[int, AgentLine]:
        """The agents by rank."""
        return self._lines

    @property
    def all_connected(self) -> bool:
        return len(self._lines) == self.world_size

    @property
    def of_several_steps(self) -> bool:
        """Whether Slurm has numbered the tasks otherwise than the ranks are."""
        return all(step.nodes != self._nodes for step in self._steps)

    @property
    def absent(self) -> tuple[str, ...]:
        """The nodes of the generation from which no agent has come."""
        here = {line.node for step in self._steps for line in step.lines.values()}
        return tuple(node for node in self._nodes if node not in here)

    async def close(self) -> None:
        """End all agents; nothing of them stays behind."""
        await asyncio.gather(*(step.end() for step in self._steps))

    async def bring_up(self, nodes: tuple[str, ...]) -> bool:
        """Have an agent for each rank on these nodes; False when they do not come in time."""
        async with self._changing:
            await self._arrange(nodes)
            coming = [step for step in self._steps if step.lacking(nodes)]
        await self._come(coming, nodes)
        for step in coming:
            step.left |= step.lacking(nodes)
        self._number()
        return self.all_connected

    async def stand_by(self, nodes: Collection[str], get_ready: Message) -> None:
        """Have agents on nodes without ranks, too, who do what they are told by ``get_ready``.

        Nothing is waited for: one that does not come is none. Raises OSError.
        """
        async with self._changing:
            for step in self._without_use(self._nodes):
                await step.end()
                self._steps.remove(step)
            held = {node for step in self._steps for node in step.nodes} | set(self._nodes)
            new = tuple(node for node in nodes if node not in held)
            self._get_ready, self._spares = get_ready, self._spares | set(new)
            for step in self._steps:
                self._ready(step.lines.values())
            if new:
                await self._begin(new)

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
        for rank, line in sorted(self.lines.items()):
            if said := self._gpu_memory.get(rank):
                held.setdefault(line.node, {})[said] = None
        return {node: "; ".join(said) for node, said in held.items()}

    def start_failed(self, generation: int) -> StartFailed:
        """Which agents did not come, as far as anybody can tell."""
        absent = self.absent
        detail = f"{len(self._lines)} of {self.world_size} agents connected"
        last = self._steps[-1] if self._steps else None
        if last is not None and last.exit_code is not None:
            detail += f"; the step ended with code {last.exit_code}"
            detail += "".join(f"; {line}" for line in tail(last.log)[-3:])
        # When nobody came it is the step that failed, not each of the nodes.
        missing = () if len(absent) == len(self._nodes) > 1 else absent
        return StartFailed(generation=generation, missing=missing, detail=detail)

    def tell(self, message: Message) -> None:
        """A message to every agent."""
        for step in self._steps:
            step.tell(message)

    def drop_silent(self) -> Iterator[tuple[int, str]]:
        """Forget the agents that have not been heard for too long: their ranks, and what is said
        of each. That of a spare is no loss."""
        for step in self._steps:
            for line, detail in step.drop_silent():
                self._changed.set()  # nobody waits for its word any more
                if line.rank != NO_RANK:
                    self._lines.pop(line.rank, None)
                    yield line.rank, detail

    def forgive_silence(self) -> None:
        """Nobody could be heard for a while."""
        for step in self._steps:
            step.forgive_silence()

    # Which steps there are

    async def _arrange(self, nodes: tuple[str, ...]) -> None:
        """End what is in the way, and begin a step where agents lack.

        A node whose agents were lost may still have them: before others come there, their step
        ends. So a node is never in two steps.
        """
        self._forget_ranks()
        wanted = set(nodes)
        self._nodes, self._spares = nodes, self._spares - wanted
        over = [step for step in self._steps if not self._stays(step)]
        over += [step for step in self._without_use(nodes) if step not in over]
        await asyncio.gather(*(step.end(stay=wanted) for step in over))
        self._steps = [step for step in self._steps if step not in over]
        kept = wanted | self._spares
        for step in self._steps:
            for line in list(step.lines.values()):
                if line.node not in kept:
                    step.dismiss(line)
        held = {node for step in self._steps for node in step.nodes}
        lacking = tuple(node for node in nodes if node not in held)
        if lacking:
            await self._begin(lacking)

    def _stays(self, step: AgentStep) -> bool:
        """Whether its agents can be those of ranks on the nodes that ranks are to be on."""
        if self._config.mpi is not None or not step.runs or step.left & set(self._nodes):
            return False
        whole = self._config.components or self._config.program == "script"
        return step.nodes == self._nodes and not step.left if whole else True

    def _without_use(self, nodes: Collection[str]) -> list[AgentStep]:
        """Steps on none of these nodes that are no spares' either, or have ended."""
        return [
            step
            for step in self._steps
            if not set(step.nodes) & set(nodes)
            and not (step.runs and set(step.nodes) & self._spares)
        ]

    async def _begin(self, nodes: tuple[str, ...]) -> None:
        self._begun += 1
        step = AgentStep(
            self._config,
            self._cluster,
            self._allocation,
            self._begun,
            nodes,
            self._token,
            self._on_message,
        )
        self._steps.append(step)
        await step.begin()

    async def _come(self, coming: Sequence[AgentStep], nodes: tuple[str, ...]) -> None:
        """Wait for the agents on these nodes; a spare's have had some of their time before."""
        if not coming:
            return
        partly = {step for step in coming if not set(step.nodes) <= set(nodes)}

        def have_come() -> bool:
            return all(
                # In a large world nodes are not counted each time that one comes.
                step.all_connected
                or not step.left.isdisjoint(nodes)
                or (step in partly and not step.lacking(nodes))
                for step in coming
            )

        limit_s = CONNECT_LIMIT_S - (time.monotonic() - max(step.begun_at for step in coming))
        await self._until(have_come, min(LATE_S, limit_s), coming)
        if limit_s <= LATE_S or have_come() or not all(step.runs for step in coming):
            return
        asking = asyncio.create_task(self._until_silent(coming, nodes))
        try:
            await self._until(have_come, limit_s - LATE_S, coming, asking)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _until_silent(self, coming: Sequence[AgentStep], nodes: Collection[str]) -> None:
        """Ends when it is known that agents will not come: a node has died as they were started."""
        late = tuple(node for node in nodes if any(node in s.lacking(nodes) for s in coming))
        if not await self._is_any_silent(late, of_nodes=len(nodes)):
            await asyncio.Event().wait()

    async def _is_any_silent(self, late: tuple[str, ...], of_nodes: int) -> bool:
        if len(late) == of_nodes:
            return False  # it is the step, which says so by itself
        control, there = self._allocation.batch_node, len(self._allocation.nodes)
        try:
            found = await probe(self._cluster, late, control, there, lambda _node: None)
        except OSError as error:
            _log.warning("%s: not asked why no agents come: %s", ", ".join(late), error)
            return False
        return bool(found.silent)

    # Who has which rank

    def _number(self) -> None:
        """Each agent on the nodes of the generation gets the rank of its place."""
        self._forget_ranks()
        places = (place_of(self._config, rank) for rank in range(self.world_size))
        rank_at = {(self._nodes[p.node], p.local_rank): rank for rank, p in enumerate(places)}
        for step in self._steps:
            as_slurm_does = step.nodes == self._nodes
            for line in step.lines.values():
                place = line.node, line.local_task
                line.rank = line.task if as_slurm_does else rank_at.get(place, NO_RANK)
                if line.rank != NO_RANK:
                    self._lines[line.rank] = line

    def _forget_ranks(self) -> None:
        for line in self._lines.values():
            line.rank = NO_RANK
        self._lines = {}

    def _ready(self, lines: Collection[AgentLine]) -> None:
        for line in lines:
            if line.node in self._spares:
                line.send(self._get_ready)

    async def _until(
        self,
        condition: Callable[[], bool],
        limit_s: float,
        steps: Sequence[AgentStep] = (),
        *others: asyncio.Task[None],
    ) -> None:
        """Wait for a condition that messages bring about; the end of one of the steps, or of
        another task, ends the wait."""
        ended = {asyncio.create_task(step.ended()) for step in steps}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        try:
            while not condition():
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                try:
                    await asyncio.wait(
                        {changed, *ended, *others},
                        timeout=deadline - loop.time(),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    changed.cancel()
                if loop.time() >= deadline or any(task.done() for task in (*ended, *others)):
                    return
        finally:
            for task in ended:
                task.cancel()

    def _on_message(self, line: AgentLine, message: Message) -> None:
        match message["type"]:
            case "hello":
                self._ready((line,))
                self._changed.set()
            case "port":
                self._rank0_port = number(message, "port")
                self._changed.set()
            case "gpus":
                self._gpu_memory[line.rank] = text(message, "held")
                self._changed.set()
            case kind if line.rank != NO_RANK or kind == "signalled":
                self._on_word(line, message)
