"""What is known of a run at one moment; the machine maps it and an event to the next one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from .causes import FaultCause, StopCause
from .classify import Fault
from .events import AllocationArranged
from .past import Past


class Phase(StrEnum):
    """Where an attempt stands."""

    NEW = "new"
    PREFLIGHT = "preflight"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    PROBING = "probing"
    WAITING = "waiting"  # for the file system of the checkpoints
    MOVING = "moving"  # a new allocation was asked for
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A node that this run avoids, and why."""

    node: str
    cause: str
    evidence: str


# What says itself that it is the node: the scheduler, a check, the hardware, or the user. Any other
# cause of an exclusion is a program's failure that came twice on it.
_STRONG: Final = frozenset(
    {
        FaultCause.NODE_DOWN.value,
        FaultCause.GPU_HARDWARE.value,
        FaultCause.GPU_LOST.value,
        "preflight",
        "degraded",
        "user",
    }
)


def weakest_first(exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """Those on weak evidence before the others; of either the oldest first."""
    return tuple(sorted(exclusions, key=lambda exclusion: exclusion.cause in _STRONG))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The ranks have to stop, by ``kill_at`` (Unix seconds) at the latest."""

    cause: StopCause
    kill_at: float | None
    evidence: str

    @property
    def ends_allocation(self) -> bool:
        """Whether the job ends with it; when nobody says so and nobody kills, it goes on."""
        if self.cause in (StopCause.SIGNALLED, StopCause.DEGRADED):
            return False
        return self.cause is not StopCause.UNKNOWN or self.kill_at is not None

    def outranks(self, other: Stop) -> bool:
        """A user's cancel beats all; knowing beats not knowing; the end of the job a signal."""
        order = (
            StopCause.SIGNALLED,
            StopCause.DEGRADED,
            StopCause.UNKNOWN,
            StopCause.HELD,
            StopCause.TIME_LIMIT,
            StopCause.PREEMPTED,
            StopCause.REQUEUED,
            StopCause.CANCELLED,
        )
        return order.index(self.cause) > order.index(other.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """The last step whose save failed, and why."""

    step: int
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One run. The first block outlives an attempt; the rest begins anew with each."""

    excluded: tuple[Exclusion, ...] = ()
    committed_step: int = -1
    failures: int = 0  # since the committed step moved
    idle_restarts: int = 0  # likewise, of any cause but a guilty node
    node_failures: int = 0  # likewise, by guilty nodes
    blind_attempts: int = 0  # ended by others, while nothing was ever saved
    marks: frozenset[tuple[str, FaultCause]] = frozenset()  # weak evidence against nodes
    first_started: float | None = None
    past: Past = field(default_factory=Past)

    attempt: str = ""
    batch_node: str = ""
    phase: Phase = Phase.NEW
    nodes: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    generation: int = 0
    outage_s: float = 0.0  # waited for the place of the checkpoints, since the committed step moved
    done: frozenset[int] = frozenset()  # ranks that ended with 0
    left_early: frozenset[int] = frozenset()  # ended before the last of their steps, done or not
    stop: Stop | None = None
    told_to_save: bool = False  # programs that save by themselves, since they were started
    asked: bool = False  # for a successor, before the ranks have stopped; no answer yet
    arranged: AllocationArranged | None = None
    avoided: tuple[str, ...] = ()  # the nodes that the last request for an allocation named
    fault: Fault | None = None
    unsaved: Unsaved | None = None  # until that step or a later one is saved
    saved_step: int = -1  # the newest that this generation has committed
    spoilt: int | None = None  # the checkpoints of this step and later ones are not to be used
    alike: int = 0  # ranks that have said what proves the fault
    alike_elsewhere: bool = False  # one of them on another node than the fault's
    witnesses: frozenset[str] = frozenset()  # nodes on which the file system has failed
    suspects: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()  # the nodes that were asked last
    degraded: tuple[Exclusion, ...] = ()  # turned bad under the ranks, which still run on them
    last_choice: tuple[Exclusion, ...] = ()  # nodes that are used when no other is there, and why
    kept: frozenset[str] = frozenset()  # likewise, and no other node could be had for them

    @property
    def excluded_nodes(self) -> tuple[str, ...]:
        return tuple(exclusion.node for exclusion in self.excluded)

    @property
    def healthy(self) -> tuple[str, ...]:
        """The nodes that may carry ranks, those of last choice last."""
        avoided, last = set(self.excluded_nodes), {one.node for one in self.last_choice}
        usable = [node for node in self.nodes if node not in avoided]
        return tuple(sorted(usable, key=lambda node: node in last))

    def chosen_last(self, node: str, cause: str, evidence: str) -> State:
        """With one more node that is used when no other is there; the first reason stays."""
        if any(one.node == node for one in self.last_choice):
            return self
        one = Exclusion(node=node, cause=str(cause), evidence=evidence)
        return replace(self, last_choice=(*self.last_choice, one))
