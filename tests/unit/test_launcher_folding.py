"""Many checkpoints as one line of the history."""

from __future__ import annotations

from relight.launcher.report import history
from relight.resilience.supervise.journal import Record


def record(time: float, name: str, attempt: str = "7.0", **data: object) -> Record:
    return Record(time, "event", name, data, attempt)


def save(step: int, attempt: str = "7.0", **more: object) -> Record:
    return record(step, "CheckpointCommitted", attempt, step=step, bytes=4_000_000, **more)


def test_many_checkpoints_in_a_row_are_one_line_for_people() -> None:
    drilled = record(25, "CheckpointDrilled", step=20, damage="")
    row = [save(step, seconds=step / 100, stall_s=0.5) for step in (20, 40, 60, 80)]
    fault = record(90, "RankExited", rank=1, node="n1", code=1)
    few = [save(step) for step in (100, 120, 140)]
    records = [*row[:1], drilled, *row[1:], fault, *few, save(160, "8.0")]
    told = history("r", records)
    assert [one.text.split(":")[0] for one in told.folded] == [
        "3 checkpoints, of steps 20 to 60",
        "checkpoint of step 80",
        "rank 1 on n1 exited with 1",
        *(f"checkpoint of step {step}" for step in (100, 120, 140, 160)),
    ]
    assert told.folded[0].text == (
        "3 checkpoints, of steps 20 to 60: 4 MB in 0.2 to 0.6 s each; steps waited 0.5 s, "
        "1 read again and whole"
    )
    assert (told.folded[0].time, told.folded[0].attempt) == (60, "7.0")
    assert len(told.story) == len(records)
    assert "folded" not in told.to_json()
    damaged = record(25, "CheckpointDrilled", step=20, damage="block 3")
    assert "block 3" in history("r", [*row[:2], damaged, *row[2:]]).folded[2].text
