"""What a batch script asks during setup, against fake Slurm commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import read_verdict

DATA = Path(__file__).parents[1] / "data" / "slurm"
RUNNING = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
ENDING = RUNNING.replace("JobState=RUNNING", "JobState=COMPLETING")
JOB_ID = re.match(r"JobId=(\d+)", RUNNING)[1]  # type: ignore[index]
PREEMPTED = "error: *** JOB 1 ON n1 CANCELLED AT 2026-11-30T02:50:00 DUE TO PREEMPTION ***\n"


@dataclass
class Stage:
    """The batch script of a job on n1."""

    fake: Path
    folder: RunFolder
    output: Path

    def answer(self, command: str, out: str, *, err: str = "", code: int = 0) -> None:
        for suffix, content in (("out", out), ("err", err), ("rc", str(code))):
            (self.fake / f"{command}.{suffix}").write_text(content)

    def leave(self, why: str, output_bytes: int = 0) -> int:
        env = {
            **os.environ,
            "FAKE_SLURM": str(self.fake),
            "PATH": f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}",
            "SLURM_JOB_ID": JOB_ID,
            "SLURM_JOB_NODELIST": "n1",
            "SLURMD_NODENAME": "n1",
        }
        module = "relight.launcher.leave"
        argv = [sys.executable, "-m", module, str(self.folder.root), why, str(output_bytes)]
        return subprocess.run(argv, env=env, timeout=60, check=False).returncode

    def sent(self) -> bool:
        return (self.fake / "sbatch.count").exists()


@pytest.fixture
def stage(tmp_path: Path, run_config: RunConfig) -> Stage:
    fake, folder = tmp_path / "fake", RunFolder(run_config.run_dir)
    fake.mkdir()
    folder.attempts.mkdir(parents=True, exist_ok=True)
    folder.journals.mkdir(parents=True, exist_ok=True)
    config = replace(run_config, nodes=1, spares=0)
    plan = {"version": 1, "cluster": "slurm", "submitted_by": "test", "created": 0}
    folder.plan.write_text(json.dumps({**plan, "run": config.to_json()}))
    stage = Stage(fake, folder, folder.attempts / f"{JOB_ID}.out")
    stage.answer("sinfo", "n1|idle\nn2|idle\n")
    stage.answer("sbatch", "99\n")
    return stage


def test_setup_goes_on_when_the_job_does(stage: Stage) -> None:
    stage.answer("scontrol", RUNNING)
    assert stage.leave("SIGTERM") == 0
    assert read_journals(stage.folder.journals) == []


def test_a_preempted_run_goes_on_in_another_job(stage: Stage) -> None:
    stage.answer("scontrol", ENDING)
    stage.output.write_text("noise\n" + PREEMPTED)
    assert stage.leave("SIGTERM", len("noise\n")) == 75
    assert stage.sent()
    (finish,) = [r.data for r in read_journals(stage.folder.journals) if r.name == "Finish"]
    assert (finish["outcome"], finish["cause"]) == ("RESTARTING", "preempted")
    assert read_verdict(stage.folder) is None


def test_what_an_earlier_attempt_was_told_says_nothing_of_this_one(stage: Stage) -> None:
    stage.answer("scontrol", ENDING)
    stage.output.write_text(PREEMPTED)
    assert stage.leave("SIGTERM", len(PREEMPTED)) == 93
    assert not stage.sent()
    verdict = read_verdict(stage.folder)
    assert verdict is not None
    assert verdict.state == "CANCELLED"


def test_a_line_that_failed_since_the_job_is_being_ended(stage: Stage) -> None:
    stage.answer("scontrol", ENDING)
    stage.output.write_text(PREEMPTED)
    assert stage.leave("failure") == 75
    assert stage.sent()


def test_a_line_that_failed_while_slurm_is_silent_has_failed(stage: Stage) -> None:
    stage.answer("scontrol", "", err="Unable to contact slurm controller", code=1)
    assert stage.leave("failure") == 0
    assert read_journals(stage.folder.journals) == []
