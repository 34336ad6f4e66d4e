"""What is told of restores: once, when all ranks go on, and with the slowest of them."""

from __future__ import annotations

from relight.launcher.story import sentence
from relight.resilience.decide.events import Event
from relight.resilience.decide.storage_events import CheckpointRestored, TierRead
from relight.resilience.supervise.journal import Record
from relight.resilience.supervise.restores import Restores


def told(size_bytes: int | None, *words: tuple[int, float | None, bool]) -> list[Event]:
    """After ranks of a world of two have said how long they took, and whether from their tier."""
    events: list[Event] = []
    restores = Restores(3, 2, size_bytes, events.append, lambda ranks: tuple(ranks))
    for rank, seconds, near in words:
        restores.restored(rank, 40, {"type": "restored", "seconds": seconds, "near": near})
    return events


def test_all_ranks_are_told_of_once() -> None:
    assert told(10**9, (0, 2.0, False)) == []
    words = [(0, 2.0, False), (1, 4.0, True), (0, 9.0, False)]
    restored = CheckpointRestored(
        generation=3, step=40, size_bytes=10**9, seconds=4.0, slowest_rank=1
    )
    assert told(10**9, *words) == [
        restored,
        TierRead(generation=3, step=40, ranks=(1,), by_partner=(1,)),
    ]


def test_a_start_from_the_beginning_restores_nothing() -> None:
    assert told(None, (0, None, False), (1, None, False)) == []


def test_the_sentence_says_how_fast() -> None:
    data = {"step": 40, "size_bytes": 10**9, "seconds": 4.0, "slowest_rank": 1}
    record = Record(0.0, "event", "CheckpointRestored", data)
    assert sentence(record) == (
        "checkpoint of step 40 restored: 1 GB in 4 s (250 MB/s), rank 1 the slowest"
    )
