"""Checkpoints are read again while a run goes on; damage is named, and only when it stays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from stage.local import UNTIL_TOLD, Run, wait_until

from relight.resilience.decide.events import Event
from relight.resilience.decide.storage_events import CheckpointDrilled
from relight.resilience.supervise.drill import Drill
from relight.resilience.supervise.journal import read_journals
from relight.storage.checkpointer import save_shard
from relight.storage.commit import claim_epoch, commit
from relight.storage.drill import drill
from relight.storage.layout import Incarnation, manifest_path, shard_path

ONE = Incarnation("1.0", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    epoch = claim_epoch(tmp_path, ONE)
    for step in (1, 2):
        states = [{"w": np.arange(50_000) + rank} for rank in range(2)]
        receipts = [save_shard(tmp_path, step, ONE, n, 2, one) for n, one in enumerate(states)]
        commit(tmp_path, step, ONE, epoch, receipts, {})
    return tmp_path


def flip(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    data[data.index(np.arange(1000, 1050).tobytes())] ^= 1
    shard.write_bytes(data)


def test_damage_is_named_and_what_was_pruned_is_not_judged(directory: Path) -> None:
    flip(shard_path(directory, 2, ONE, 1))
    assert drill(directory, 1) == ""
    found = drill(directory, 2)
    assert found == "1.0.g0/shard-00001.h5: w, block 0: its digest does not match"
    manifest_path(directory, 2).unlink()
    assert drill(directory, 2) is None


def test_every_second_one_is_drilled_and_one_at_a_time(directory: Path) -> None:
    events: list[Event] = []
    drills = Drill(directory, 2, events.append)
    assert [drills.due(step) for step in (1, 2, 3, 4)] == [False, True, False, False]
    flip(shard_path(directory, 2, ONE, 0))
    asyncio.run(drills.run(2))
    (event,) = events
    assert isinstance(event, CheckpointDrilled)
    assert (event.step, event.damage[:24]) == (2, "1.0.g0/shard-00000.h5: w")
    assert "checkpoint 2 was read again and is damaged: 1.0.g0/shard-00000.h5" in drills.saw[0]
    assert not drills.due(5)
    assert drills.due(6)
    assert not Drill(directory, 0, events.append).due(1)


def test_a_drill_that_cannot_be_started_ends_no_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drills = Drill(directory, 1, lambda event: pytest.fail("nothing was read"))
    assert drills.due(1)
    monkeypatch.setattr(sys, "executable", str(directory / "gone"))
    asyncio.run(drills.run(1))
    assert drills.due(2)


def test_a_run_tells_of_its_drills(tmp_path: Path) -> None:
    program, spec, stop = tmp_path / "train.py", tmp_path / "job.yaml", tmp_path / "stop"
    program.write_text(UNTIL_TOLD.format(stop=str(stop)))
    checkpoint = "{interval: 20 steps, drill: 2, keep: {last: 1000}}"  # none goes before its drill
    spec.write_text(
        f"command: {sys.executable} {program}\n"
        f"checkpoint: {checkpoint}\nhealth: {{preflight: off}}\n"
    )
    run = Run(tmp_path / "home", str(spec))

    def seen() -> list[Mapping[str, object]]:
        records = read_journals(run.folder / "journal")
        return [record.data for record in records if record.name == "CheckpointDrilled"]

    run.wait_for_checkpoint()
    wait_until(lambda: bool(seen()))
    stop.touch()
    code, _ = run.end()
    assert code == 0
    records, drilled = read_journals(run.folder / "journal"), seen()
    assert {data["damage"] for data in drilled} == {""}
    assert {int(str(data["step"])) % 40 for data in drilled} == {0}
    commits = [record.data for record in records if record.name == "CheckpointCommitted"]
    for data in commits:  # in the background: steps wait for the copy only
        assert data["slowest_rank"] is None, "of one rank nobody is the slowest"
        assert 0.0 < float(str(data["stall_s"])) < float(str(data["seconds"]))
        assert int(str(data["staged_bytes"])) >= 64 * 8
    told = json.dumps(json.loads(run.relight("history", run.folder.name, "--json")))
    assert f"checkpoint {drilled[0]['step']} was read again and is whole" in told
