"""What an order waits for before it is carried out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import cast

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import RollBack, SetCheckpointAside, StartRanks
from relight.resilience.decide.events import Event
from relight.resilience.supervise import orders as module
from relight.resilience.supervise import saves as saves_module
from relight.resilience.supervise.cluster import Allocation, Cluster
from relight.resilience.supervise.orders import Orders
from relight.resilience.supervise.pace import Pace
from relight.resilience.supervise.ranks import Ranks
from relight.resilience.supervise.saves import Saves
from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, shard_path
from relight.storage.receipt import Receipt
from relight.storage.set_aside import set_aside

ONE = Incarnation("7.0", 1)
HERE = Allocation(
    job_id="7",
    restart_count=0,
    nodes=("n1",),
    batch_node="n1",
    supervisor_host="n1",
)


class Started:
    """Ranks that only note what they are started from."""

    def __init__(self) -> None:
        self.restored: list[int | None] = []

    def expect(self, generation: int) -> None:
        assert generation == 2

    async def start(self, order: StartRanks, restore: Path | None, step: int | None) -> None:
        self.restored.append(step)


def save(directory: Path, step: int, epoch: int) -> None:
    shard = shard_path(directory, step, ONE, 0)
    shard.parent.mkdir(parents=True)
    shard.write_bytes(bytes(4096))
    receipt = Receipt(
        step=step,
        rank=0,
        world_size=1,
        incarnation=ONE,
        file=f"{ONE.folder}/{shard.name}",
        size_bytes=4096,
        digest="ab" * 16,
        payload_bytes=100,
        seconds=0.25,
        index_at=2048,
        index_bytes=300,
        digests_at=1024,
        digests_bytes=32,
    )
    commit(directory, step, ONE, epoch, [receipt], {})


@pytest.mark.parametrize(
    "order", [SetCheckpointAside(step=3, reason="block 3"), RollBack(step=2, reason="loss is nan")]
)
def test_ranks_start_after_what_is_damaged_or_spoilt_is_set_aside(
    run_config: RunConfig,
    monkeypatch: pytest.MonkeyPatch,
    order: SetCheckpointAside | RollBack,
) -> None:
    directory = run_config.checkpoint.directory
    epoch = claim_epoch(directory, ONE)
    for step in (1, 2, 3):
        save(directory, step, epoch)
    chosen = threading.Event()

    def choose(directory: Path) -> object:
        found = newest_valid(directory)
        chosen.set()
        return found

    def slow(directory: Path, step: int, reason: str, *, spoilt: bool) -> None:
        chosen.wait(0.3)  # as long as a busy file system may take
        set_aside(directory, step, reason, spoilt=spoilt)

    monkeypatch.setattr(saves_module, "newest_valid", choose)
    monkeypatch.setattr(module, "set_aside", slow)
    told: list[Event] = []
    ranks = Started()

    async def nothing() -> None:
        return

    async def story() -> None:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
            tasks.append(asyncio.create_task(work))
            return tasks[-1]

        orders = Orders(
            run_config,
            cast("Cluster", None),
            HERE,
            cast("Ranks", ranks),
            Saves(run_config, told.append, lambda message: None),
            Pace(run_config.restart),
            told.append,
            spawn,
            lambda: None,
            nothing,
        )
        orders.carry_out(order)
        orders.carry_out(
            StartRanks(generation=2, nodes=("n1",), delay_s=0.0, committed_step=3, reason="x")
        )
        begun = time.monotonic()
        while not ranks.restored and not told and time.monotonic() < begun + 20:
            await asyncio.wait([task for task in tasks if not task.done()], timeout=1.0)

    asyncio.run(story())
    newest = 1 if isinstance(order, RollBack) else 2
    assert (ranks.restored, told) == ([newest], [])
