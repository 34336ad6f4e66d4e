"""A rank cannot restore: the shard it names is read again, once, for those who still ask."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from relight.resilience.decide.events import CheckpointRefused, Event
from relight.resilience.supervise import refusals as module
from relight.resilience.supervise.refusals import Refusal, Refusals
from relight.resilience.worker.checkpoints import shard_of
from relight.storage.checkpointer import CheckpointDamaged, save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.layout import Incarnation, manifest_path, shard_file, shard_path
from relight.storage.manifest import Manifest
from relight.storage.needs import Needs
from relight.storage.resize import load_for
from relight.storage.verify import verify_shard

ONE = Incarnation("1.0", 1)
RANKS = 4


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Step 7, which four ranks have saved."""
    epoch = claim_epoch(tmp_path, ONE)
    state: dict[str, object] = {"x": np.arange(100_000)}
    receipts = [save_shard(tmp_path, 7, ONE, rank, RANKS, state) for rank in range(RANKS)]
    return commit(tmp_path, 7, ONE, epoch, receipts, {})


def damage(directory: Path, rank: int) -> None:
    path = shard_path(directory, 7, ONE, rank)
    path.write_bytes(bytes(path.stat().st_size))


def refusal(file: str | None, node: str = "n1", *, lacking: bool = False) -> Refusal:
    return Refusal(generation=1, step=7, file=file, node=node, reason="damaged", lacking=lacking)


def judged(directory: Path, *refusals: Refusal, generation: int = 1) -> list[Event]:
    told: list[Event] = []

    async def story() -> None:
        judge = Refusals(directory, told.append, lambda: generation)
        await asyncio.gather(*map(judge.judge, refusals))
        judge.close()

    asyncio.run(story())
    return told


def sound(events: list[Event]) -> list[tuple[str, bool]]:
    return [(one.node, one.sound) for one in events if isinstance(one, CheckpointRefused)]


def test_damage_in_another_ranks_shard_is_found(tmp_path: Path, manifest: Manifest) -> None:
    damage(tmp_path, 3)
    with pytest.raises(CheckpointDamaged) as caught:
        load_for(tmp_path, manifest, 1, 2, Needs(pieces={}))
    file = shard_of(caught.value)
    assert file == shard_file(ONE, 3)
    assert sound(judged(tmp_path, refusal(file))) == [("n1", False)]


def test_a_new_rank_that_cannot_read_is_no_damage(tmp_path: Path, manifest: Manifest) -> None:
    assert sound(judged(tmp_path, refusal(shard_file(ONE, 0)), refusal(None, "n9"))) == [
        ("n1", True),
        ("n9", True),
    ]


def test_who_lacks_a_library_says_nothing_of_damage(tmp_path: Path, manifest: Manifest) -> None:
    damage(tmp_path, 3)
    file = shard_file(ONE, 3)
    told = judged(tmp_path, refusal(file, lacking=True), refusal(file, "n9"))
    assert sound(told) == [("n1", True), ("n9", False)]


def test_a_damaged_manifest_is_damage(tmp_path: Path, manifest: Manifest) -> None:
    manifest_path(tmp_path, 7).write_text("{}")
    assert sound(judged(tmp_path, refusal(None))) == [("n1", False)]


def test_what_cannot_be_read_now_stays(tmp_path: Path, manifest: Manifest) -> None:
    manifest_path(tmp_path, 7).unlink()
    manifest_path(tmp_path, 7).mkdir()  # EISDIR
    assert sound(judged(tmp_path, refusal(None))) == [("n1", True)]


def test_many_that_refuse_one_shard_are_answered_by_one_look(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str | None] = []

    def counted(directory: Path, step: int, file: str | None) -> bool:
        looks.append(file)
        return verify_shard(directory, step, file)

    monkeypatch.setattr(module, "verify_shard", counted)
    damage(tmp_path, 3)
    file = shard_file(ONE, 3)
    told = judged(tmp_path, *(refusal(file, f"n{number}") for number in range(1000)))
    assert sound(told) == [("n0", False)], "one checkpoint is set aside once"
    assert looks == [file]


def test_a_look_that_ends_under_the_next_generation_is_not_told(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> bool:
        begun.set()
        return go_on.wait(20) and False

    monkeypatch.setattr(module, "verify_shard", slow)
    told: list[Event] = []
    current = 1

    async def story() -> None:
        nonlocal current
        judge = Refusals(tmp_path, told.append, lambda: current)
        late = asyncio.create_task(judge.judge(refusal(shard_file(ONE, 3))))
        await asyncio.to_thread(begun.wait, 20)
        current = 2
        go_on.set()
        await late
        judge.close()

    asyncio.run(story())
    assert told == []
