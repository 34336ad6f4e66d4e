"""What a supervisor may do. Actions are orders; each carries its reason and is journaled first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .causes import RestartWay, StopCause


class Outcome(StrEnum):
    """How an attempt, or the whole run, ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # by the program's own fault
    STOPPED = "STOPPED"  # going on would be wrong or in vain
    CANCELLED = "CANCELLED"
    RESTARTING = "RESTARTING"  # goes on in a new allocation
    INTERRUPTED = "INTERRUPTED"  # ends here; whether it comes back, the scheduler says, or a person


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPreflight:
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRanks:
    """``committed_step``: they must go on from a checkpoint if this is not negative."""

    generation: int
    nodes: tuple[str, ...]
    delay_s: float
    committed_step: int = -1
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnyway:
    """The ranks that are being started need not wait for the memory of GPUs any longer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAndStop:
    """All ranks save one common step and exit; none runs past ``kill_at``."""

    cause: StopCause
    kill_at: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRanks:
    """End all ranks now, without a save; with ``stacks`` they first say where they are.

    ``patience_s`` is what they have to end by themselves before.
    """

    reason: str
    stacks: bool = False
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeNodes:
    """Ask nodes whether they live; with ``work`` they are given tests that make them work."""

    nodes: tuple[str, ...]
    reason: str
    work: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeNode:
    """From now on this run avoids the node."""

    node: str
    cause: str
    reason: str  # the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCheckpointAside:
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Set aside the checkpoints of ``step`` and of all later steps."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitStorage:
    """Look whether the place of the checkpoints works, until it does or ``limit_s`` have passed."""

    limit_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAllocation:
    """``early``: while the ranks still save. A requeue would end them: only a successor will do."""

    exclude: tuple[str, ...]
    reason: str
    early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Take a new allocation back."""

    mode: RestartWay
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The attempt ends with this exit code; ``tail`` is what the failing rank said last."""

    outcome: Outcome
    exit_code: int
    cause: str
    reason: str
    tail: tuple[str, ...] = ()


Action = (
    RunPreflight
    | StartRanks
    | StartAnyway
    | SaveAndStop
    | StopRanks
    | ProbeNodes
    | ExcludeNode
    | SetCheckpointAside
    | RollBack
    | AwaitStorage
    | RequestAllocation
    | Withdraw
    | Finish
)
