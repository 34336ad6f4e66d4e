"""A run's records as its history (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from relight.resilience.supervise.journal import Record

from .folding import folded
from .json_values import number, text, texts
from .story import sentence


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
    """One sentence of the run's story; ``attempt`` is empty while none ran."""

    time: float
    attempt: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What ``relight history`` says of one run; ``folded`` is the story for people, with many
    checkpoints in one sentence."""

    run_id: str
    attempts: tuple[Attempt, ...]
    excluded: tuple[Exclusion, ...]
    story: tuple[Happening, ...]
    folded: tuple[Happening, ...]

    def to_json(self) -> dict[str, object]:
        told = asdict(self)
        del told["folded"]
        return told


def history(run_id: str, records: Sequence[Record], untold: Record | None = None) -> History:
    """A run's history from the records of all its attempts, oldest first; ``untold`` is its end,
    where that came while no attempt ran."""
    names = list(dict.fromkeys(record.attempt for record in records))
    told = list(_told_once([*records, *([untold] if untold is not None else [])]))
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
        story=tuple(_happenings(told)),
        folded=tuple(_happenings(folded(told))),
    )


def _happenings(records: Sequence[Record]) -> Iterator[Happening]:
    for record in records:
        if (said := sentence(record)) is not None:
            yield Happening(time=record.time, attempt=record.attempt, text=said)


def _told_once(records: Sequence[Record]) -> Iterator[Record]:
    """Without what is said again of a stop that is under way: by a signal, then by the end."""
    known: tuple[str, object] | None = None
    for record in records:
        if record.name == "StopRequested":
            stop = (record.attempt, record.data.get("cause"))
            if stop == known:
                continue
            known = stop
        yield record


def _attempt(name: str, records: Sequence[Record]) -> Attempt:
    start = next((r for r in records if r.name == "AttemptStarted"), records[0])
    finish = next((r for r in reversed(records) if r.name == "Finish"), None)
    end: Mapping[str, object] = {} if finish is None else finish.data
    return Attempt(
        attempt=name,
        job_id=name.rpartition(".")[0],
        started=start.time,
        nodes=texts(start.data.get("nodes")),
        generations=tuple(
            _generation(record, records) for record in records if record.name == "RanksStarted"
        ),
        ended=None if finish is None else finish.time,
        outcome=text(end.get("outcome")),
        cause=text(end.get("cause")),
        reason=text(end.get("reason")),
    )


def _generation(start: Record, records: Sequence[Record]) -> Generation:
    generation = number(start.data.get("generation"))
    return Generation(
        number=-1 if generation is None else generation,
        started=start.time,
        nodes=texts(start.data.get("nodes")),
        restored_step=number(start.data.get("restored_step")),
        checkpoints=tuple(
            step
            for record in records
            if record.name == "CheckpointCommitted"
            and record.data.get("generation") == generation
            and (step := number(record.data.get("step"))) is not None
        ),
    )
