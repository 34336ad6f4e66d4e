"""A metric that the best checkpoints are kept by, and that the program does not log."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import Event
from relight.resilience.decide.storage_events import MetricMissing
from relight.resilience.supervise import commits
from relight.resilience.supervise.saves import Saves
from relight.storage.layout import Incarnation
from relight.storage.notes import Notes
from relight.storage.receipt import Receipt
from relight.storage.retention import Best, Keep


@pytest.mark.parametrize(("metric", "missing"), [("accuracy", 1), ("loss", 0)])
def test_it_is_told_once_and_with_what_is_logged(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch, metric: str, missing: int
) -> None:
    monkeypatch.setattr(commits, "commit", lambda *_: None)
    keep = Keep(best=Best(metric=metric))
    config = replace(run_config, checkpoint=replace(run_config.checkpoint, keep=keep))
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(config, told.append, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        for step in (1, 2):
            saves.saved(receipt(step), {})
            await saves.settle()

    asyncio.run(story())
    expected = MetricMissing(metric="accuracy", logged=("loss",))
    assert [event for event in told if isinstance(event, MetricMissing)] == [expected] * missing


def receipt(step: int) -> Receipt:
    return Receipt(
        step=step,
        rank=0,
        world_size=1,
        incarnation=Incarnation("7.0", 1),
        file="7.0.g1/shard-00000.h5",
        size_bytes=4096,
        digest="ab" * 16,
        payload_bytes=100,
        seconds=0.25,
        index_at=2048,
        index_bytes=300,
        digests_at=1024,
        digests_bytes=32,
        notes=Notes(metrics={"loss": 0.5}),
    )
