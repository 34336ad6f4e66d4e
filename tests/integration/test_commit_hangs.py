"""A commit that does not come to its end: the file system of the checkpoints is away."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.events import CheckpointCommitted, Event, SaveFailed
from relight.resilience.supervise import saves as module
from relight.resilience.supervise.saves import Saves
from relight.storage.layout import Incarnation
from relight.storage.receipt import Receipt


def receipt() -> Receipt:
    return Receipt(
        step=7,
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
    )


def test_it_is_a_failed_save_until_it_succeeds_after_all(
    run_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr(module, "commit", lambda *_: back.wait(20))
    monkeypatch.setattr(module, "SETTLE_LIMIT_S", 0.1)
    told: list[Event] = []

    async def story() -> None:
        saves = Saves(run_config, told.append, lambda message: None)
        await saves.begin(Incarnation("7.0", 1), world_size=1, committed_step=-1)
        saves.saved({"type": "saved", "receipt": receipt().to_json()})
        await asyncio.gather(saves.settle(), saves.settle())
        (failed,) = told
        assert isinstance(failed, SaveFailed), "told once"
        assert (failed.step, failed.errno) == (7, errno.ETIMEDOUT)
        back.set()
        monkeypatch.setattr(module, "SETTLE_LIMIT_S", 20.0)
        await saves.settle()
        assert isinstance(told[-1], CheckpointCommitted)
        assert told[-1].step == 7
        assert len(told) == 2

    asyncio.run(story())
