"""A submission whose answer is lost is neither repeated blindly nor forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.lookup import SubmissionUnknown
from relight.launcher.clusters.slurm.submit import submit
from relight.launcher.launch_plan import LaunchPlan
from relight.launcher.run_creation import new_run_folder
from relight.launcher.runs import find_run
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import ClusterUnavailable

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
AT_ONCE = (0.0, 0.0, 0.0, 0.0)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of a Slurm whose sbatch always times out."""
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{FAKE_BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    (folder / "sbatch.err").write_text("sbatch: error: Socket timed out on send/recv operation")
    (folder / "sbatch.rc").write_text("1")
    return folder


@pytest.fixture
def launch(run_config: RunConfig) -> LaunchPlan:
    return LaunchPlan(cluster="slurm", config=run_config, script="#!/bin/bash\n")


def send(launch: LaunchPlan) -> str:
    with new_run_folder(launch, "command: a"):
        return submit(launch, pauses_s=AT_ONCE)


def times_sent(fake: Path) -> int:
    return int((fake / "sbatch.count").read_text())


def test_when_squeue_is_silent_too_the_run_folder_stays(fake: Path, launch: LaunchPlan) -> None:
    (fake / "squeue.rc").write_text("1")
    run_id = launch.config.run_id
    with pytest.raises(SubmissionUnknown, match=f"--name={run_id}.*relight cancel {run_id}"):
        send(launch)
    assert times_sent(fake) == 1
    assert find_run(run_id).folder.script.exists()


def test_when_squeue_answers_after_a_while(fake: Path, launch: LaunchPlan) -> None:
    for call in (1, 2):
        (fake / f"squeue.{call}.rc").write_text("1")
    (fake / "squeue.out").write_text("43|PENDING|Priority\n")
    assert send(launch) == "43"
    assert times_sent(fake) == 1


def test_when_no_job_appears_it_is_sent_again(fake: Path, launch: LaunchPlan) -> None:
    (fake / "sbatch.2.out").write_text("Submitted batch job 44\n")
    assert send(launch) == "44"


def test_when_no_job_ever_appears_nothing_is_left(fake: Path, launch: LaunchPlan) -> None:
    with pytest.raises(ClusterUnavailable, match="nothing was submitted"):
        send(launch)
    assert times_sent(fake) == 4
    assert not launch.folder.root.exists()
