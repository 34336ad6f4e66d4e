"""``relight run`` when stops come at bad moments and checkpoints vanish under it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from stage.local import PROGRAM, Run, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def write_spec(tmp_path: Path, *, program: str = PROGRAM.format(steps=300)) -> Path:
    (tmp_path / "program.py").write_text(program)
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: t\ncommand: [{sys.executable}, {tmp_path / 'program.py'}]\n"
        f"resources: {{nodes: 2}}\n"
        f"checkpoint: {{interval: 20 steps, directory: {tmp_path / 'kept'}}}\n"
        "restart: {failures: 9, no_progress: 9}\n"
    )
    return path


def orders(run: Run, name: str) -> list[dict[str, object]]:
    lines = "".join(path.read_text() for path in (run.folder / "journal").glob("*.jsonl"))
    records = [json.loads(line) for line in lines.splitlines()]
    return [record["data"] for record in records if record["name"] == name]


def test_a_stop_in_the_pause_before_a_restart_ends_the_attempt(home: Path, tmp_path: Path) -> None:
    fails = PROGRAM.format(steps=300).replace(
        "    time.sleep", "    if step == 25 and run.rank: raise SystemExit(3)\n    time.sleep"
    )
    run = Run(home, str(write_spec(tmp_path, program=fails)))
    run.wait_for_checkpoint()
    wait_until(lambda: any(float(str(o["delay_s"])) >= 2 for o in orders(run, "StartRanks")))
    run.process.send_signal(signal.SIGTERM)
    code, _ = run.end()
    assert code == 75
    assert run.status()["state"] == "RESTARTING"
    assert (
        orders(run, "StartRanks")[-1]["generation"] == orders(run, "RanksStopped")[-1]["generation"]
    )


def test_a_lost_checkpoint_directory_is_no_new_beginning(home: Path, tmp_path: Path) -> None:
    run = Run(home, str(write_spec(tmp_path)))
    run.wait_for_checkpoint()
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 75
    (tmp_path / "kept").rename(tmp_path / "moved")
    resumed = Run(home, "--resume", run.folder.name)
    assert resumed.end()[0] == 93
    assert "is gone; was the folder moved?" in run.relight("history", run.folder.name)
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "moved").rename(tmp_path / "kept")
    assert Run(home, "--resume", run.folder.name).end()[0] == 0


def test_who_loses_its_directory_is_not_superseded(home: Path, tmp_path: Path) -> None:
    run = Run(home, str(write_spec(tmp_path)))
    run.wait_for_checkpoint()
    (tmp_path / "kept").rename(tmp_path / "moved")  # at once: a removal would race with the ranks
    assert run.end()[0] == 0
    assert not orders(run, "Superseded")
    assert "is gone; was it deleted, moved or unmounted" in str(orders(run, "SaveFailed")[-1])
    listed = json.loads(run.relight("ckpt", "ls", run.folder.name, "--json"))
    assert (listed["checkpoints"][0]["step"], listed["checkpoints"][0]["condition"]) == (
        300,
        "valid",
    )
