"""A script's job from the script that was sent to its end, with a stand-in for Slurm's commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import read_verdict

SLURM = Path(__file__).parents[1] / "data" / "slurm"
RELIGHT = Path(sys.executable).with_name("relight")
PATIENCE_S = 120.0


class Job:
    """A submitted script, and the life of its batch script here."""

    def __init__(self, folder: Path, script: str) -> None:
        self.nodes = "n1"
        self._folder = folder
        fake = folder / "fake"
        fake.mkdir()
        (fake / "sbatch.out").write_text("Submitted batch job 42\n")
        self.end_in(3600.0)
        self._env = {
            "HOME": str(folder),
            "PATH": f"{SLURM / 'fake' / 'bin'}:{os.environ['PATH']}",
            "FAKE_SLURM": str(fake),
        }
        (folder / "job.sh").write_text(script)
        subprocess.run(
            [RELIGHT, "sbatch", "job.sh", "an argument"],
            env=self._env, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip
        (root,) = (folder / ".relight" / "runs").iterdir()
        self.run = RunFolder(root)

    def relight(self, *words: str) -> str:
        (self._folder / "fake" / "squeue.out").write_text("42|RUNNING|None\n")
        call = [str(RELIGHT), *words]
        done = subprocess.run(
            call, env=self._env, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout

    def end_in(self, seconds: float, why: str = "running") -> None:
        """Let the time limit be near, or the kill that ends a preemption."""
        job = (SLURM / "22.05" / f"scontrol-show-job-{why}.txt").read_text()
        end = datetime.fromtimestamp(time.time() + seconds).isoformat(timespec="seconds")
        text = re.sub(r"(?<= )EndTime=\S*", f"EndTime={end}", job)
        new = self._folder / "fake" / "scontrol.new"
        new.write_text(text)
        new.replace(new.with_suffix(".out"))

    def start(self, restarts: int = 0) -> subprocess.Popen[bytes]:
        """As slurmd does, with the job's environment and output file."""
        job = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": self.nodes, "SLURMD_NODENAME": "n1"}
        if restarts:
            job["SLURM_RESTART_COUNT"] = str(restarts)
        with (self._folder / "out").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-E", str(self.run.script)],
                env={**self._env, **job, "SLURM_OPEN_MODE": "a"},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def output(self) -> str:
        return (self._folder / "out").read_text()

    def until(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output():
            assert time.monotonic() < deadline, self.output()
            meanwhile()
            time.sleep(0.05)


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Job]:
    return lambda body: Job(tmp_path, f"#!/bin/bash\n#RELIGHT health.preflight: off\n{body}")


def test_the_script_has_the_jobs_own_environment_and_output(job: Callable[[str], Job]) -> None:
    this = job("echo \"$1 in $PWD\"\ntr '\\0' '\\n' < /proc/$$/environ | sort\n")
    assert this.start().wait(PATIENCE_S) == 0
    first, *variables = this.output().splitlines()
    assert first == f"an argument in {this.run.root.parents[2]}"
    names = {line.partition("=")[0] for line in variables}
    assert names == {
        "FAKE_SLURM", "HOME", "PATH", "RELIGHT_ATTEMPT", "RELIGHT_RUN_ID",
        "SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST",
    }  # fmt: skip
    verdict = read_verdict(this.run)
    assert verdict is not None
    assert verdict.state == "COMPLETED"


def test_the_exit_code_is_that_of_the_script(job: Callable[[str], Job]) -> None:
    this = job("exit 3\n")
    assert this.start().wait(PATIENCE_S) == 3
    names = [record.name for record in read_journals(this.run.journals)]
    assert "ProbeNodes" in names, "before the script is blamed"
    assert names.count("RanksStarted") == 1
    assert "every decision is the same again" in this.relight("replay", this.run.root.name)


def test_a_script_on_two_nodes_decides_the_same_again(job: Callable[[str], Job]) -> None:
    this = job("true\n")
    this.nodes = "n[1-2]"
    assert this.start().wait(PATIENCE_S) == 0
    assert "every decision is the same again" in this.relight("replay", this.run.root.name)


def test_a_signal_reaches_the_script_once_and_stops_nothing(job: Callable[[str], Job]) -> None:
    this = job("trap 'echo heard' USR2\necho ready\nuntil [ -e enough ]; do sleep 0.1; done\n")
    process = this.start()
    this.until("ready")
    process.send_signal(signal.SIGUSR2)
    this.until("heard")
    (this.run.root.parents[2] / "enough").touch()
    assert process.wait(PATIENCE_S) == 0
    assert this.output().count("heard") == 1


JOINED = f"""\
#RELIGHT checkpoint.signal: USR1
export RELIGHT_CHECKPOINT_DIR=$PWD/checkpoints/$RELIGHT_RUN_ID
exec {sys.executable} -u train.py
"""
FIVE_LINES = """\
import time, relight
run, done = relight.join(), []
run.protect(done=done)
for step in run.steps(200):
    done.append(step)
    print(f"<step {step}>")
    time.sleep(0.1)
assert done == list(range(200))
"""


def test_a_program_with_the_five_lines_goes_on_in_a_script(
    job: Callable[[str], Job], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(FIVE_LINES)
    this = job(JOINED)
    this.end_in(16)
    process = this.start()
    this.until("<step", lambda: this.end_in(16))  # the limit is near once it computes
    assert process.wait(PATIENCE_S) == 75, "told before its time limit, it has saved"
    first = this.output().count("<step")
    assert 0 < first < 200
    this.end_in(3600)
    assert this.start(restarts=1).wait(PATIENCE_S) == 0
    assert this.output().count("<step") == 200, "no step is lost, and none is done twice"


SAVES = """\
#RELIGHT checkpoint.signal: USR1
trap 'echo told' USR1
echo ready
until [ -e enough ]; do sleep 0.1; done
"""


def test_a_script_is_told_to_save_before_its_time_limit(job: Callable[[str], Job]) -> None:
    this = job(SAVES)
    this.end_in(20)
    process = this.start()
    this.until("ready", lambda: this.end_in(20))
    begun = time.monotonic()
    this.until("told")
    assert time.monotonic() - begun > 10, "a quarter of the time before the end, and not sooner"
    (this.run.root.parents[2] / "enough").touch()
    assert process.wait(PATIENCE_S) == 75, "it has ended since the job has to: it comes back"
    assert this.output().count("told") == 1


ENDS_AFTER_A_SAVE = """\
#RELIGHT checkpoint.signal: USR1
#RELIGHT resume: echo goes on
trap 'exit 75' USR1
echo ready
until false; do sleep 0.1; done
"""


@pytest.mark.parametrize("told_by", ["relight", "Slurm"])
def test_a_script_that_saves_and_ends_with_75_when_told_to_goes_on_in_the_same_allocation(
    job: Callable[[str], Job], told_by: str
) -> None:
    this = job(ENDS_AFTER_A_SAVE)
    this.end_in(3600)
    process = this.start()
    this.until("ready")
    if told_by == "relight":
        assert "was sent SIGUSR1" in this.relight("checkpoint", this.run.root.name)
    else:
        process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE_S) == 0
    assert this.output() == "ready\ngoes on\n"


SAVES_AND_STAYS = """\
#RELIGHT checkpoint.signal: USR1
#RELIGHT checkpoint.done: mark
trap 'touch mark' USR1
trap 'echo preempted' TERM
echo ready
until false; do sleep 0.1; done
"""


def test_a_script_that_has_saved_keeps_no_nodes_until_the_grace_is_over(
    job: Callable[[str], Job],
) -> None:
    this = job(SAVES_AND_STAYS)
    this.end_in(3600)
    process = this.start()
    this.until("ready")
    this.end_in(600, "preempted-in-grace")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 75
    ended = [r.data["stopped"] for r in read_journals(this.run.journals) if r.name == "RankExited"]
    assert ended == [True]
    assert "no marker has changed for 5 s" in this.relight("history", this.run.root.name)
