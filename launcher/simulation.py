"""A run of many days in a moment: the real machine, on nodes that fail at random (pure).

Time passes only as the model says; all times are in seconds. What the model leaves out: failures of
the program itself, and saves that go on while the ranks compute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from relight.resilience.decide.actions import (
    Action,
    Finish,
    Outcome,
    ProbeNodes,
    RequestAllocation,
    StartRanks,
    StopRanks,
)
from relight.resilience.decide.events import (
    AllocationArranged,
    AttemptStarted,
    CheckpointCommitted,
    Event,
    NodesProbed,
    RankLost,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.machine import step
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``node_rate``: failures per node and second. ``restart_s``: from a failure to the next step.

    ``queue_s``: what a new allocation takes on top of that, when no spare is left.
    """

    nodes: int
    spares: int
    node_rate: float
    save_s: float
    interval_s: float
    restart_s: float
    queue_s: float
    wall_s: float


@dataclass(slots=True)
class Tally:
    """Where the time went. ``stopped`` is why the machine gave up, if it did."""

    useful_s: float = 0.0
    saving_s: float = 0.0
    lost_s: float = 0.0  # work after the last save before a failure
    restarting_s: float = 0.0
    queued_s: float = 0.0
    failures: int = 0
    allocations: int = 0
    stopped: str | None = None

    @property
    def wall_s(self) -> float:
        return self.useful_s + self.saving_s + self.lost_s + self.restarting_s + self.queued_s

    @property
    def useful_share(self) -> float:
        return self.useful_s / self.wall_s


def simulate(model: Model, seed: int) -> Tally:
    """Where the time of one run went. The same seed gives the same failures."""
    return _World(model, Random(seed)).run()


@dataclass(slots=True)
class _World:
    """What answers the machine's orders: nodes, a clock, and a queue that always has nodes."""

    model: Model
    chance: Random
    tally: Tally = field(default_factory=Tally)
    coming: deque[Event] = field(default_factory=deque)
    saved: int = 0

    def run(self) -> Tally:
        policy = Policy(nodes=self.model.nodes, tasks_per_node=1, preflight=False)
        state = State()
        self.allocate()
        while self.coming:
            state, orders = step(state, self.coming.popleft(), policy, self.tally.wall_s)
            for order in orders:
                self.answer(order, state.generation)
        return self.tally

    def answer(self, order: Action, generation: int) -> None:
        match order:
            case StartRanks():
                self.live(order)
            case StopRanks():
                self.coming.append(RanksStopped(generation=generation))
            case ProbeNodes():
                silent = dict.fromkeys(order.nodes, "no answer")
                self.coming.append(NodesProbed(answered=(), silent=silent))
            case RequestAllocation():
                self.tally.queued_s += self.model.queue_s
                self.coming.append(AllocationArranged(mode="successor", job_id="next"))
            case Finish(outcome=Outcome.RESTARTING):
                self.allocate()
            case Finish():
                self.tally.stopped = order.reason

    def allocate(self) -> None:
        """Fresh nodes, spares included."""
        number = self.tally.allocations
        self.tally.allocations += 1
        size = self.model.nodes + self.model.spares
        nodes = tuple(f"{number}.{index}" for index in range(size))
        begun = AttemptStarted(
            attempt=f"{number}.0",
            job_id=str(number),
            restart_count=0,
            nodes=nodes,
            batch_node=nodes[0],
        )
        self.coming.append(begun)

    def live(self, order: StartRanks) -> None:
        """One generation, up to the failure of a node or the end of the time."""
        model, tally = self.model, self.tally
        left_s = max(0.0, model.wall_s - tally.wall_s)
        until_failure_s = self.chance.expovariate(model.nodes * model.node_rate)
        here_s = min(until_failure_s, left_s)
        starting_s = min(model.restart_s, here_s) if tally.failures else 0.0
        saves = int((here_s - starting_s) // (model.interval_s + model.save_s))
        tally.restarting_s += starting_s
        tally.useful_s += saves * model.interval_s
        tally.saving_s += saves * model.save_s
        tally.lost_s += here_s - starting_s - saves * (model.interval_s + model.save_s)
        if until_failure_s < left_s:
            self.fail(order, saves)

    def fail(self, order: StartRanks, saves: int) -> None:
        """What the supervisor hears of a generation that ends with the failure of a node."""
        generation = order.generation
        self.tally.failures += 1
        self.saved += saves
        rank = self.chance.randrange(len(order.nodes))
        node = order.nodes[rank]
        self.coming += (
            RanksStarted(generation=generation, nodes=order.nodes, world_size=self.model.nodes),
            CheckpointCommitted(step=self.saved, generation=generation),
            RankLost(generation=generation, rank=rank, node=node, detail="its node failed"),
        )
