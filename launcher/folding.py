"""Many checkpoints in a row as one record, so that what else happened is seen (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from relight.resilience.supervise.journal import Record

from .json_values import number, real
from .story import FOLDED, sentence

_SAVED: Final = "CheckpointCommitted"
_FEW: Final = 3  # in a row are told one by one


def folded(records: Sequence[Record]) -> list[Record]:
    """The records that have a sentence, with saves that went well, and what is told of them later,
    as one for each row of them; the last save of a row stays, for a run may go back to it."""
    told: list[Record] = []
    row: list[Record] = []
    for record in records:
        if sentence(record) is None:
            continue
        if not _is_routine(record) or (row and row[-1].attempt != record.attempt):
            told += _row(row)
            row = []
        if _is_routine(record):
            row.append(record)
        else:
            told.append(record)
    return [*told, *_row(row)]


def _is_routine(record: Record) -> bool:
    match record.name:
        case "CheckpointCommitted":
            return True
        case "CheckpointDrilled":
            return not record.data.get("damage")
        case "CheckpointArchived":
            return not record.data.get("failure")
    return False


def _row(row: list[Record]) -> Iterator[Record]:
    saves = [record for record in row if record.name == _SAVED]
    if len(saves) <= _FEW:
        yield from row
        return
    last = saves[-1]
    before = saves[:-1]
    steps = [step for save in before if (step := number(save.data.get("step"))) is not None]
    data: dict[str, object] = {
        "count": len(before),
        "steps": [min(steps), max(steps)] if steps else [None, None],
        "seconds": _range(before, "seconds"),
        "bytes": _range(before, "bytes"),
        "stall_s": _range(before, "stall_s"),
        "drilled": sum(record.name == "CheckpointDrilled" for record in row),
        "archived": sum(record.name == "CheckpointArchived" for record in row),
    }
    yield Record(before[-1].time, "event", FOLDED, data, before[-1].attempt)
    yield last


def _range(saves: Sequence[Record], field: str) -> list[float] | None:
    """The least and the most."""
    values = [value for save in saves if (value := real(save.data.get(field))) is not None]
    return [min(values), max(values)] if values else None
