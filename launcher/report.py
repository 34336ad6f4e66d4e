"""A run's records as its status and its history (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from relight.resilience.supervise.journal import Record
from relight.resilience.supervise.standing import Verdict

from .story import sentence


class RunState(StrEnum):
    """Where a run is in its life."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    STOPPED = "STOPPED"
    UNKNOWN = "UNKNOWN"


class Presence(StrEnum):
    """What the scheduler, or for a local run the process table, says of a run's job."""

    RUNNING = "running"
    WAITING = "waiting"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What ``relight status`` says of one run."""

    run_id: str
    state: RunState
    cluster: str
    job_id: str | None
    attempt: str | None
    generation: int | None
    phase: str | None
    step: int | None
    nodes: tuple[str, ...]
    excluded: tuple[str, ...]
    last_checkpoint: int | None
    reason: str | None
    run_dir: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """All that a status is made of."""

    run_id: str
    cluster: str
    run_dir: str
    job_id: str | None
    progress: Mapping[str, object] | None
    verdict: Verdict | None
    presence: Presence
    has_started: bool


def status(facts: RunFacts) -> Status:
    """A run's status."""
    progress = facts.progress or {}
    excluded = progress.get("excluded")
    return Status(
        run_id=facts.run_id,
        state=_state(facts),
        cluster=facts.cluster,
        job_id=facts.job_id,
        attempt=_text(progress.get("attempt")),
        generation=_number(progress.get("generation")),
        phase=_text(progress.get("phase")),
        step=_number(progress.get("step")),
        nodes=_texts(progress.get("nodes")),
        excluded=tuple(
            str(item["node"]) if isinstance(item, Mapping) else str(item)
            for item in (excluded if isinstance(excluded, list) else ())
        ),
        last_checkpoint=_number(progress.get("last_checkpoint")),
        reason=facts.verdict.reason if facts.verdict else None,
        run_dir=facts.run_dir,
    )


def _state(facts: RunFacts) -> RunState:
    """The verdict is final; without one, absence from the queue is never read as an end."""
    if facts.verdict is not None:
        try:
            return RunState(facts.verdict.state)
        except ValueError:
            return RunState.UNKNOWN
    match facts.presence:
        case Presence.RUNNING:
            return RunState.RUNNING
        case Presence.WAITING:
            return RunState.RESTARTING if facts.has_started else RunState.PENDING
        case _:
            return RunState.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One start of all ranks."""

    number: int
    started: float
    nodes: tuple[str, ...]
    restored_step: int | None
    checkpoints: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A node that the run avoids, and why."""

    node: str
    cause: str
    evidence: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One allocation."""

    attempt: str
    job_id: str
    started: float
    nodes: tuple[str, ...]
    generations: tuple[Generation, ...]
    ended: float | None
    outcome: str | None
    cause: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One sentence of the run's story."""

    time: float
    attempt: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What ``relight history`` says of one run."""

    run_id: str
    attempts: tuple[Attempt, ...]
    excluded: tuple[Exclusion, ...]
    story: tuple[Happening, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def history(run_id: str, records: Sequence[Record]) -> History:
    """A run's history from the records of all its attempts, oldest first."""
    names = list(dict.fromkeys(record.attempt for record in records))
    return History(
        run_id=run_id,
        attempts=tuple(_attempt(name, [r for r in records if r.attempt == name]) for name in names),
        excluded=tuple(
            Exclusion(
                node=str(record.data.get("node")),
                cause=str(record.data.get("cause")),
                evidence=str(record.data.get("reason")),
                time=record.time,
            )
            for record in records
            if record.name == "ExcludeNode"
        ),
        story=tuple(
            Happening(time=record.time, attempt=record.attempt, text=text)
            for record in records
            if (text := sentence(record)) is not None
        ),
    )


def _attempt(name: str, records: Sequence[Record]) -> Attempt:
    start = next((r for r in records if r.name == "AttemptStarted"), records[0])
    finish = next((r for r in reversed(records) if r.name == "Finish"), None)
    end: Mapping[str, object] = {} if finish is None else finish.data
    return Attempt(
        attempt=name,
        job_id=name.rpartition(".")[0],
        started=start.time,
        nodes=_texts(start.data.get("nodes")),
        generations=tuple(
            _generation(record, records) for record in records if record.name == "RanksStarted"
        ),
        ended=None if finish is None else finish.time,
        outcome=_text(end.get("outcome")),
        cause=_text(end.get("cause")),
        reason=_text(end.get("reason")),
    )


def _generation(start: Record, records: Sequence[Record]) -> Generation:
    number = _number(start.data.get("generation"))
    return Generation(
        number=-1 if number is None else number,
        started=start.time,
        nodes=_texts(start.data.get("nodes")),
        restored_step=_number(start.data.get("restored_step")),
        checkpoints=tuple(
            step
            for record in records
            if record.name == "CheckpointCommitted"
            and record.data.get("generation") == number
            and (step := _number(record.data.get("step"))) is not None
        ),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()
