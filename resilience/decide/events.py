"""What can happen to a run. Events are facts in the past tense; they are journaled as they come.

Times are Unix seconds. ``attempt`` strings are ``<job_id>.<restart_count>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .causes import RestartWay, StopCause
from .storage_events import (
    CheckpointArchived,
    CheckpointDrilled,
    CheckpointFetched,
    CheckpointRestored,
    MetricMissing,
    StorageAnswered,
    StorageSilent,
    TierFailed,
    TierRead,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A supervisor took over an allocation. The first event of every attempt."""

    attempt: str
    job_id: str
    restart_count: int
    nodes: tuple[str, ...]
    batch_node: str
    end_time: float | None = None
    lost_batch_node: str | None = None  # the previous attempt's, when the scheduler says it is down
    committed_step: int = -1  # of the newest valid checkpoint found at the start
    resumed: bool = False  # a person has started the run again: its budgets begin anew


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinished:
    """The checks of all nodes are in. ``bad`` maps a node to the evidence against it.

    ``doubted`` nodes fail what so many others do that they are not left for it. ``silent`` nodes
    have sent no report. ``outage``: the file system of the checkpoints is away on all of them, by
    their own word.
    """

    bad: Mapping[str, str]
    doubted: Mapping[str, str] = field(default_factory=dict)
    job_fault: str | None = None
    warnings: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    outage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStarted:
    """All ranks of a generation run in one fresh world."""

    generation: int
    nodes: tuple[str, ...]
    world_size: int
    restored_step: int | None = None
    by_resume: bool = False  # a program that saves by itself, by its command to go on


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """A generation did not come up in time; ``missing`` are the nodes that did not answer.

    ``errno`` is what the file system of the checkpoints has said, if that is why.
    """

    generation: int
    missing: tuple[str, ...]
    detail: str
    errno: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited:
    """A rank's program ended. Exactly one of ``code`` and ``signal`` is set.

    ``stopped`` says that the supervisor had ordered its end, ``unfinished`` that it had begun its
    steps and not done the last one.
    """

    generation: int
    rank: int
    node: str
    code: int | None = None
    signal: str | None = None
    stopped: bool = False
    unfinished: bool = False
    tail: tuple[str, ...] = ()
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLost:
    """The agent of a rank fell silent or its connection broke."""

    generation: int
    rank: int
    node: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksHung:
    """The ranks do no steps any more; ``ranks`` are those that are behind, on ``nodes``."""

    generation: int
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStraggled:
    """Ranks on ``node`` are slower than their peers; ``by_node``: since the node is slow."""

    generation: int
    ranks: tuple[int, ...]
    node: str
    detail: str
    by_node: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemoryStayed:
    """GPUs hold memory long after the ranks have ended; ``held`` maps nodes to the evidence."""

    generation: int
    held: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotFinite:
    """A rank logs NaN or infinity as its loss, again and again.

    ``since``: the state after so many steps, and any later one, may be spoilt by it.
    """

    generation: int
    rank: int
    node: str
    since: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStopped:
    """No rank of this generation runs any more, as far as anybody can tell."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesProbed:
    """Suspects were asked to run a command; ``silent`` maps those that did not to the evidence.

    ``failed`` likewise those whose tests speak against them. Those that answer may have
    ``rebooted``.
    """

    answered: tuple[str, ...]
    silent: Mapping[str, str]
    failed: Mapping[str, str] = field(default_factory=dict)
    rebooted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUnanswered:
    """These of the suspects have not answered at once; NodesProbed tells what becomes of it."""

    nodes: tuple[str, ...]
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRejected:
    """The user wants the run to leave nodes. ``bad`` maps each to the reason."""

    bad: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWatched:
    """What the checks during the run warn of has changed: ``warnings`` is all of it, by now."""

    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionForgotten:
    """The ledger took no record of a node that the run leaves out: other runs will meet it."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesExamined:
    """The last look at the nodes, after the run has ended; ``bad`` maps nodes to the evidence."""

    bad: Mapping[str, str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDegraded:
    """A node speaks against itself while ranks run; ``can_save`` says whether they would save."""

    node: str
    evidence: str
    can_save: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The scheduler, the user or the clock wants the ranks to stop."""

    cause: StopCause
    kill_at: float | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldToSave:
    """Programs that save by themselves were sent their signal (``checkpoint.signal``).

    It is for them to say whether they go on after the save, or end to be started again.
    """

    generation: int
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """A checkpoint that was asked for will not come.

    ``node`` is where it failed and ``errno`` what the file system said, as far as either is known.
    ``step`` is None when the ranks of ``generation`` have not even agreed on one, or one of them
    has ended before its first.
    """

    step: int | None
    reason: str
    node: str | None = None
    errno: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksLingered:
    """Ranks that were told to save and end are still there."""

    generation: int
    ranks: tuple[int, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """A checkpoint became valid.

    ``seconds`` is what the slowest rank took, ``stall_s`` the longest that a rank's steps waited,
    ``behind_s`` of that for the save before; ``staged_bytes`` what all ranks copied to go on.
    """

    step: int
    generation: int
    bytes: int = 0
    seconds: float = 0.0
    slowest_rank: int | None = None
    stall_s: float | None = None
    behind_s: float = 0.0
    staged_bytes: int = 0
    by_partner: tuple[int, ...] = ()  # ranks whose node was lost, and another had a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused:
    """A rank on ``node`` could not restore from a checkpoint.

    ``sound`` says that others can read what that rank could not; ``lacking``, that a library is not
    there which it needs for that.
    """

    generation: int
    step: int
    reason: str
    node: str
    sound: bool = False
    lacking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreImpossible:
    """There are checkpoints and none of them is valid: never a silent start from scratch."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationArranged:
    """The run goes on in a new allocation once this one has ended.

    ``released``: nodes that were to be avoided and are not, as too few others would be left.
    """

    mode: RestartWay
    job_id: str
    released: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRefused:
    """There will be no new allocation; ``transient``: only because nobody answered."""

    reason: str
    transient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Another supervisor has taken the checkpoints over: of this run, or of ``other_run``."""

    reason: str
    other_run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """People were told of the end, ``by`` webhook or command; ``failure`` is empty if it worked."""

    by: str
    failure: str = ""


Event = (
    AttemptStarted
    | PreflightFinished
    | RanksStarted
    | StartFailed
    | RankExited
    | RankLost
    | RanksHung
    | RanksStopped
    | RanksStraggled
    | GpuMemoryStayed
    | LossNotFinite
    | NodesProbed
    | ProbeUnanswered
    | NodesRejected
    | NodesWatched
    | ExclusionForgotten
    | NodesExamined
    | NodeDegraded
    | StopRequested
    | ToldToSave
    | SaveFailed
    | RanksLingered
    | CheckpointCommitted
    | CheckpointRefused
    | CheckpointDrilled
    | MetricMissing
    | CheckpointArchived
    | CheckpointFetched
    | TierFailed
    | TierRead
    | CheckpointRestored
    | StorageAnswered
    | StorageSilent
    | RestoreImpossible
    | AllocationArranged
    | AllocationRefused
    | Superseded
    | Notified
)
