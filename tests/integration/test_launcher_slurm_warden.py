"""Wardens against fake commands: who acts for an attempt whose batch host is gone, and when."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm import warden as module
from relight.launcher.clusters.slurm.client import SlurmClient
from relight.launcher.clusters.slurm.orphan import mark_path, read_mark
from relight.launcher.clusters.slurm.warden import Warden, posts
from relight.resilience.config import RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Allocation, ClusterUnavailable, Restart
from relight.resilience.supervise.standing import read_verdict

DATA = Path(__file__).parents[1] / "data" / "slurm"
RUNNING = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
JOB_ID = re.match(r"JobId=(\d+)", RUNNING)[1]  # type: ignore[index]
ATTEMPT = f"{JOB_ID}.0"


@dataclass
class Stage:
    """A job on n1 to n3 whose batch host n1 is down, two wardens, and a clock."""

    fake: Path
    config: RunConfig
    now: float = 1000.0

    def warden(self, name: str) -> Warden:
        client = SlurmClient(sleep=lambda _: None)
        return Warden(self.config, ATTEMPT, name, client, lambda: self.now)

    def answer(self, command: str, out: str, code: int = 0) -> None:
        (self.fake / f"{command}.out").write_text(out)
        (self.fake / f"{command}.rc").write_text(str(code))

    def count(self, command: str) -> int:
        path = self.fake / f"{command}.count"
        return int(path.read_text()) if path.exists() else 0

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.config.run_dir)


@pytest.fixture
def stage(tmp_path: Path, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Stage:
    fake = tmp_path / "fake"
    fake.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(fake))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    stage = Stage(fake, replace(run_config, nodes=2))
    stage.folder.attempt(ATTEMPT).mkdir(parents=True)
    stage.answer("scontrol", RUNNING)
    stage.answer("sinfo", "n1|down*\nn2|alloc\nn3|alloc\nn4|idle\n")
    stage.answer("sbatch", "99\n")
    return stage


def test_a_host_that_dies_before_the_first_word(stage: Stage) -> None:
    warden = stage.warden("n2.1")
    assert not warden.look()
    assert stage.count("scontrol") == 0, "silence has only begun"
    stage.now += 11
    assert warden.look()
    assert (stage.count("sbatch"), stage.count("scancel")) == (1, 1)
    mark = read_mark(mark_path(stage.folder, ATTEMPT))
    assert mark is not None
    assert (mark.owner, mark.restart) == ("n2.1", Restart("successor", "99"))


def test_a_supervisor_whose_clock_is_wrong_is_alive_as_long_as_it_writes(stage: Stage) -> None:
    warden = stage.warden("n2.1")
    for second in range(5):
        stage.folder.progress.write_text("{}")
        os.utime(stage.folder.progress, (second, second))
        stage.now += 9
        assert not warden.look()
    assert stage.count("scontrol") == 0
    stage.now += 11
    assert warden.look()


def test_the_owner_tries_again_and_the_other_waits(stage: Stage) -> None:
    first, second = stage.warden("n2.1"), stage.warden("n3.1")
    stage.now += 11
    stage.answer("sbatch", "", code=1)
    stage.answer("squeue", "", code=1)
    (stage.fake / "sbatch.err").write_text("Socket timed out")
    with pytest.raises(ClusterUnavailable):
        first.look()
    assert not second.look()
    assert stage.count("sbatch") == 0, "without squeue nobody knows what is in the queue"
    stage.answer("squeue", "")
    stage.answer("sbatch", "99\n")
    assert not second.look()
    assert first.look()
    assert stage.count("sbatch") == 1


def test_another_takes_over_when_the_owner_has_vanished(stage: Stage) -> None:
    first, second = stage.warden("n2.1"), stage.warden("n3.1")
    stage.now += 11
    stage.answer("squeue", "", code=1)
    with pytest.raises(ClusterUnavailable):
        first.look()
    stage.answer("squeue", "")
    assert not second.look()
    stage.now += 299
    assert not second.look()
    stage.now += 2
    assert second.look()
    assert stage.count("sbatch") == 1


def test_a_refusal_ends_the_run_and_its_job(stage: Stage) -> None:
    warden = stage.warden("n2.1")
    stage.now += 11
    stage.answer("scontrol", RUNNING.replace("ReqNodeList=(null)", "ReqNodeList=n1"))
    assert warden.look()
    verdict = read_verdict(stage.folder)
    assert verdict is not None
    assert verdict.state == "STOPPED"
    assert "n1, which ran the supervisor, is down, and --nodelist asks for n1" in verdict.reason
    assert (stage.count("sbatch"), stage.count("scancel")) == (0, 1)


def test_never_is_obeyed_and_told(stage: Stage) -> None:
    stage.config = replace(stage.config, restart=replace(stage.config.restart, mode="never"))
    warden = stage.warden("n2.1")
    stage.now += 11
    assert warden.look()
    verdict = read_verdict(stage.folder)
    assert verdict is not None
    assert (verdict.state, "restart.mode is never" in verdict.reason) == ("STOPPED", True)
    assert (stage.count("sbatch"), stage.count("scancel")) == (0, 1)


def test_a_warden_of_setup_stays_until_there_is_a_supervisor(stage: Stage) -> None:
    stage.answer("sinfo", "n1|alloc\nn2|alloc\nn3|alloc\n")
    warden = replace(stage.warden("n2.1"), of_setup=True)
    stage.now += 11
    assert not warden.look()
    assert stage.count("scontrol") == 1
    stage.now += 9
    assert not warden.look()
    assert stage.count("scontrol") == 1, "Slurm has just said that all is well"
    stage.folder.journals.mkdir(parents=True, exist_ok=True)
    stage.folder.journal(ATTEMPT).touch()
    assert warden.look()


def test_a_warden_of_setup_acts_when_the_host_is_lost(stage: Stage) -> None:
    warden = replace(stage.warden("n2.1"), of_setup=True)
    stage.now += 11
    assert warden.look()
    assert (stage.count("sbatch"), stage.count("scancel")) == (1, 1)


@pytest.mark.parametrize(
    ("job", "stays"),
    [
        (RUNNING, True),
        (RUNNING.replace("JobState=RUNNING", "JobState=COMPLETING"), False),
        (RUNNING.replace("Restarts=0", "Restarts=1"), False),
        ("", False),
    ],
)
def test_a_sigterm_ends_a_warden_only_with_its_job(stage: Stage, job: str, stays: bool) -> None:
    """Slurm sends one to all steps when the grace of a preemption begins."""
    stage.answer("scontrol", job)
    assert stage.warden("n2.1").job_runs() is stays


def test_posts_are_spread_over_the_allocation() -> None:
    nodes = tuple(f"n{number}" for number in range(1, 102))
    given = Allocation(
        job_id="7", restart_count=0, nodes=nodes, batch_node="n1", supervisor_host="n1"
    )
    assert posts(given, 0) == ("n2", "n27", "n52", "n77")
    assert len(posts(given, 2)) == 6
    assert len(posts(given, 90)) == 16
    assert posts(replace(given, nodes=("n1", "n2", "n3", "n4")), 0) == ("n2", "n3", "n4")
    assert posts(replace(given, nodes=("n1",)), 0) == ()


def test_a_step_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN); print(flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", deaf + "signal.pause()"], stdout=subprocess.PIPE
    ) as step:
        assert step.stdout is not None
        step.stdout.readline()
        started = time.monotonic()
        module._end(step)
        assert time.monotonic() - started < 10
