"""A run that starts before the runs that it waits for are done, against fake Slurm commands."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.client import SlurmClient
from relight.launcher.launch_plan import LaunchPlan
from relight.launcher.run_creation import new_run_folder
from relight.launcher.runs import job_ids
from relight.launcher.too_early import go_back
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import read_verdict, write_verdict

DATA = Path(__file__).parents[1] / "data" / "slurm"
RUNNING = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
TIMED_OUT = "error: Socket timed out on send/recv operation"
JOB = {"SLURM_JOB_ID": "50"}


@dataclass
class Stage:
    """``waiting`` waits for the run in ``first``."""

    fake: Path
    first: RunFolder
    waiting: RunConfig
    paused_s: float = 0.0

    def answer(self, command: str, out: str = "", *, err: str = "", code: int = 0) -> None:
        for suffix, content in (("out", out), ("err", err), ("rc", str(code))):
            (self.fake / f"{command}.{suffix}").write_text(content)

    def start(self, at_pause: Callable[[], None] = lambda: None) -> int | None:
        def sleep(seconds: float) -> None:
            self.paused_s += seconds
            at_pause()

        return go_back(self.waiting, JOB, SlurmClient(sleep=sleep))

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.waiting.run_dir)

    def calls(self, command: str) -> list[str]:
        lines = (self.fake / "calls").read_text().splitlines()
        return [line.replace("\t", " ") for line in lines if line.split("\t")[0] == command]

    def complete(self) -> None:
        order = Finish(outcome=Outcome.COMPLETED, exit_code=0, cause="", reason="")
        write_verdict(self.first, order, time.time())


@pytest.fixture
def stage(tmp_path: Path, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Stage:
    fake = tmp_path / "fake"
    fake.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(fake))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path / "home"))
    first = LaunchPlan(cluster="slurm", config=run_config, script="#!/bin/bash\n")
    waiting = replace(
        run_config,
        run_id="eval-9f9f9f",
        run_dir=tmp_path / "eval",
        after=(str(first.folder.root),),
    )
    for plan in (first, replace(first, config=waiting)):
        with new_run_folder(plan, "command: a"):
            pass
    this = Stage(fake, first.folder, waiting)
    this.answer("squeue", "43|RUNNING|None\n")
    this.answer("scontrol", RUNNING)
    this.answer("sbatch", "51\n")
    for call in ("squeue.2", "squeue.3"):  # no successor waits already
        this.answer(call)
    return this


def test_a_run_that_is_under_way_is_not_judged_again(stage: Stage) -> None:
    stage.complete()
    assert stage.start() is None
    shutil.rmtree(stage.first.root)  # tidied up while the second run is in mid-life
    assert stage.start() is None
    assert read_verdict(stage.folder) is None


def test_a_first_start_without_its_predecessor_is_refused(stage: Stage) -> None:
    shutil.rmtree(stage.first.root)
    assert stage.start() == 93
    verdict = read_verdict(stage.folder)
    assert verdict is not None
    assert (verdict.state, "cannot be read" in verdict.reason) == ("STOPPED", True)


def test_the_other_run_knows_of_the_job_that_waits_now(stage: Stage) -> None:
    assert stage.start() == 75
    assert "--dependency=afterany:50:43" in stage.calls("sbatch")[0]
    assert (stage.first.dependents / "51").exists()
    assert job_ids(stage.folder) == ["51"]


def test_slurm_may_be_silent_for_minutes(stage: Stage) -> None:
    stage.answer("squeue", err=TIMED_OUT, code=1)
    for call in ("squeue.2", "squeue.3"):
        stage.answer(call, err=TIMED_OUT, code=1)

    def answers_again() -> None:
        if stage.paused_s > 120:
            stage.answer("squeue")
            stage.complete()

    assert stage.start(answers_again) is None
    assert stage.paused_s > 120


def test_a_successor_whose_answer_was_lost_is_not_sent_twice(stage: Stage) -> None:
    stage.answer("sbatch", err=TIMED_OUT, code=1)
    stage.answer("squeue", "43|RUNNING|None\n")
    stage.answer("squeue.3", "51|PENDING|Dependency\n")
    assert stage.start() == 75
    assert len(stage.calls("sbatch")) == 1
    assert (stage.first.dependents / "51").exists()


def test_when_slurm_stays_silent_the_job_is_requeued(stage: Stage) -> None:
    for call in ("squeue", "squeue.2", "squeue.3"):
        stage.answer(call, err=TIMED_OUT, code=1)
    assert stage.start() == 75
    assert stage.paused_s > 300
    assert stage.calls("scontrol")[-1] == "scontrol requeue 50"
    assert read_verdict(stage.folder) is None


def test_when_nothing_works_the_end_is_told(stage: Stage) -> None:
    for call in ("squeue", "squeue.2", "squeue.3", "scontrol"):
        stage.answer(call, err=TIMED_OUT, code=1)
    assert stage.start() == 93
    verdict = read_verdict(stage.folder)
    assert verdict is not None
    assert (verdict.state, "did not requeue" in verdict.reason) == ("STOPPED", True)
