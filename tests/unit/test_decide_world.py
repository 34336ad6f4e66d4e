"""The machine in worlds that answer each order as they please: it ends when nothing goes on."""

from __future__ import annotations

import errno
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from promises import step

from relight.resilience.decide.actions import (
    Action,
    AwaitStorage,
    Finish,
    Outcome,
    ProbeNodes,
    RequestAllocation,
    RunPreflight,
    SaveAndStop,
    StartRanks,
)
from relight.resilience.decide.causes import StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    NodeDegraded,
    NodesProbed,
    PreflightFinished,
    ProbeUnanswered,
    RankExited,
    RankLost,
    RanksHung,
    RanksLingered,
    RanksStarted,
    RanksStopped,
    SaveFailed,
    StartFailed,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.state import Phase, State
from relight.resilience.decide.storage_events import StorageAnswered, StorageSilent

ENOUGH = 400  # events; budgets of 3, 3 and 10 allow far fewer
ENDS = (StopCause.PREEMPTED, StopCause.TIME_LIMIT, StopCause.REQUEUED, StopCause.UNKNOWN)


class World:
    """A cluster of endless nodes. With ``progress`` a generation saves before it fails."""

    def __init__(self, random: Random, policy: Policy, *, progress: bool) -> None:
        self.random = random
        self.policy = policy
        self.progress = progress
        self.state = State(committed_step=0)  # one checkpoint: progress can be seen
        self.nodes = 0
        self.attempts = 0
        self.outcomes: list[Outcome] = []
        self.saved_in = ("", 0)
        self.queue: list[Event] = [self.allocation()]

    def allocation(self) -> AttemptStarted:
        """New nodes, sometimes with a spare."""
        size = self.policy.nodes + self.random.randint(0, 1)
        names = tuple(f"n{self.nodes + number}" for number in range(size))
        self.nodes += size
        self.attempts += 1
        return AttemptStarted(
            attempt=f"{self.attempts}.0",
            job_id=str(self.attempts),
            restart_count=0,
            nodes=names,
            batch_node=names[0],
            lost_batch_node=self.random.choice([None, self.state.batch_node or None]),
        )

    def run(self) -> int:
        """How many events it took until the run had ended for good."""
        for count in range(ENOUGH):
            event = self.queue.pop(0) if self.queue else self.happening()
            if event is None:
                return count
            self.state, actions = step(self.state, event, self.policy, float(count))
            for action in actions:
                self.answer(action)
        raise AssertionError(f"no end in sight: {self.state}")

    def answer(self, order: Action) -> None:
        chance = self.random.random()
        generation = self.state.generation
        match order:
            case RunPreflight():
                bad = {order.nodes[0]: "no memory"} if order.nodes and chance < 0.2 else {}
                mute = order.nodes[-1:] if chance > 0.8 else ()
                self.queue.append(PreflightFinished(bad=bad, silent=mute))
            case StartRanks() if chance < 0.1:
                self.queue.append(
                    StartFailed(generation=generation, missing=(), detail="x", errno=errno.EIO)
                )
            case StartRanks() if chance < 0.2:
                missing = order.nodes[:1]
                self.queue.append(StartFailed(generation=generation, missing=missing, detail="x"))
            case StartRanks():
                self.queue.append(
                    RanksStarted(generation=generation, nodes=order.nodes, world_size=2)
                )
            case ProbeNodes():
                silent = dict.fromkeys(order.nodes, "no answer") if chance < 0.5 else {}
                answered = () if silent else order.nodes
                self.queue.append(ProbeUnanswered(nodes=order.nodes, waited_s=1.0))
                self.queue.append(NodesProbed(answered=answered, silent=silent))
            case AwaitStorage() if chance < 0.2:
                self.queue.append(StorageSilent(waited_s=900.0, detail="x"))
            case AwaitStorage():
                self.queue.append(StorageAnswered(waited_s=5.0))
            case SaveAndStop() if chance < 0.3:
                self.queue.append(SaveFailed(step=None, reason="no room"))
            case RequestAllocation() if chance < 0.1:
                self.queue.append(AllocationRefused(reason="no"))
            case RequestAllocation():
                self.queue.append(AllocationArranged(mode="successor", job_id="8"))
            case Finish():
                self.outcomes.append(order.outcome)
                if order.outcome in (Outcome.RESTARTING, Outcome.INTERRUPTED):
                    self.queue = [self.allocation()]

    def happening(self) -> Event | None:
        """What comes by itself; None when nothing will come any more."""
        generation = self.state.generation
        match self.state.phase:
            case Phase.RUNNING if self.saves_now():
                newer = self.state.committed_step + 1
                return CheckpointCommitted(step=newer, generation=generation)
            case Phase.RUNNING:
                return self.trouble()
            case Phase.STOPPING:
                return RanksStopped(generation=generation)
            case Phase.ENDED:
                return None
            case phase:
                raise AssertionError(f"{phase}: an order was not given")

    def saves_now(self) -> bool:
        """At most once a generation: a run without any trouble would do its steps for ever."""
        running = (self.state.attempt, self.state.generation)
        if not self.progress or running == self.saved_in or self.random.random() < 0.5:
            return False
        self.saved_in = running
        return True

    def trouble(self) -> Event:
        generation, node = self.state.generation, self.state.active[0]
        troubles: list[Event] = [
            RankExited(generation=generation, rank=0, node=node, code=1),
            RankExited(generation=generation, rank=0, node=node, signal="SIGKILL"),
            RankExited(generation=generation, rank=0, node=node, code=75),
            RankLost(generation=generation, rank=0, node=node, detail="x"),
            RanksHung(generation=generation, ranks=(0,), nodes=(node,), detail="x"),
            CheckpointRefused(generation=generation, step=0, reason="x", node="n1"),
            RanksLingered(generation=generation, ranks=(0,), detail="x"),
            NodeDegraded(node=node, evidence="x", can_save=True),
            NodeDegraded(node=node, evidence="x", can_save=False),
            self.allocation(),  # the supervisor vanished
            *(StopRequested(cause=cause, kill_at=9.0, evidence="x") for cause in ENDS),
        ]
        return self.random.choice(troubles)


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_without_progress_it_always_ends(random: Random, nodes: int) -> None:
    world = World(random, Policy(nodes=nodes, tasks_per_node=1), progress=False)
    world.run()
    assert world.outcomes[-1] in (Outcome.STOPPED, Outcome.FAILED)


@given(st.randoms(use_true_random=False))
def test_with_a_cap_on_its_time_it_ends_whatever_progress_is_made(random: Random) -> None:
    policy = Policy(nodes=2, tasks_per_node=1, walltime_s=100.0)
    World(random, policy, progress=True).run()


@given(st.randoms(use_true_random=False))
def test_only_nodes_with_evidence_against_them_are_excluded(random: Random) -> None:
    world = World(random, Policy(nodes=2, tasks_per_node=1), progress=False)
    world.run()
    for exclusion in world.state.excluded:
        assert exclusion.cause in ("preflight", "node down", "degraded")
        assert exclusion.evidence
