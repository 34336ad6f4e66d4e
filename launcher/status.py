"""Where a run stands (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from relight.resilience.supervise.standing import Verdict
from relight.resilience.supervise.transfers import Transfer

from .json_values import number, real, text, texts
from .transfers import transfer_of
from .waiting import waits_within

_SILENT_S: Final = 15


class RunState(StrEnum):
    """Where a run is in its life."""

    PENDING = "PENDING"
    HELD = "HELD"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    STOPPED = "STOPPED"
    UNKNOWN = "UNKNOWN"

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.STOPPED)


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
    health: tuple[str, ...]
    steps_per_s: float | None
    transfer: Transfer | None  # the save or restore that goes on
    time_left_s: int | None  # until the time limit of this attempt
    waits_for: str | None
    silent_s: int | None  # since the supervisor wrote last, where that is long ago
    reason: str | None
    run_dir: str
    tasks: Mapping[str, int] | None = None  # of a sweep, by what became of them

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
    now: float
    held: bool = False
    waits_for: str | None = None
    tasks: Mapping[str, int] | None = None


def status(facts: RunFacts) -> Status:
    """A run's status."""
    progress = facts.progress or {}
    excluded = progress.get("excluded")
    # What the last attempt has left behind says nothing of the one that begins.
    runs = facts.presence is Presence.RUNNING and facts.job_id == progress.get("job_id")
    running = progress if runs else {}
    return Status(
        run_id=facts.run_id,
        state=_state(facts),
        cluster=facts.cluster,
        job_id=facts.job_id,
        attempt=text(progress.get("attempt")),
        generation=number(progress.get("generation")),
        phase=text(progress.get("phase")),
        step=_step(progress),
        nodes=texts(progress.get("nodes")),
        excluded=tuple(
            str(item["node"]) if isinstance(item, Mapping) else str(item)
            for item in (excluded if isinstance(excluded, list) else ())
        ),
        last_checkpoint=number(progress.get("last_checkpoint")),
        health=texts(progress.get("health")),
        steps_per_s=real(running.get("steps_per_s")),
        transfer=transfer_of(running, since=facts.now - _SILENT_S),
        time_left_s=_seconds(running.get("end_time"), facts.now),
        waits_for=facts.waits_for or waits_within(running, facts.now),
        silent_s=_silent_s(facts, running),
        reason=facts.verdict.reason if facts.verdict else None,
        run_dir=facts.run_dir,
        tasks=facts.tasks,
    )


def _step(progress: Mapping[str, object]) -> int | None:
    """Ranks tell of their steps now and then, and a checkpoint of one that is done is as sure."""
    steps = (number(progress.get("step")), number(progress.get("last_checkpoint")))
    return max((step for step in steps if step is not None), default=None)


def _silent_s(facts: RunFacts, progress: Mapping[str, object]) -> int | None:
    """It writes every second; a busy file system may keep that back for a while."""
    wrote = real(progress.get("time"))
    if facts.presence is not Presence.RUNNING or wrote is None:
        return None
    silent_s = int(facts.now - wrote)
    return silent_s if silent_s > _SILENT_S else None


def _seconds(end_time: object, now: float) -> int | None:
    end = real(end_time)
    return None if end is None else max(0, int(end - now))


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
        case Presence.WAITING if facts.held:
            return RunState.HELD
        case Presence.WAITING:
            return RunState.RESTARTING if facts.has_started else RunState.PENDING
        case _:
            return RunState.UNKNOWN
