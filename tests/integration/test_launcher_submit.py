"""A submission whose answer is lost is neither repeated blindly nor forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.lookup import SubmissionUnknown
from relight.launcher.clusters.slurm.submit import (
    SubmissionRefused,
    submit,
    submit_arrays,
)
from relight.launcher.launch_plan import LaunchPlan
from relight.launcher.run_creation import new_run_folder, note_jobs
from relight.launcher.runs import find_run, job_ids
from relight.resilience.config import RunConfig
from relight.resilience.supervise.cluster import ClusterUnavailable

RECORDED = Path(__file__).parents[1] / "data" / "slurm"
FAKE_BIN = RECORDED / "fake" / "bin"
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
        return submit(launch, pauses_s=AT_ONCE, look_s=0.0)


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


@pytest.fixture
def full(fake: Path) -> Path:
    """A Slurm in which the user has as many jobs as may be; the fourth try finds room."""
    limit = (RECORDED / "25.11" / "sbatch-refused-submit-limit.txt").read_text()
    (fake / "sbatch.err").write_text(limit)
    (fake / "sbatch.4.out").write_text("Submitted batch job 44\n")
    return fake


def test_a_user_with_as_many_jobs_as_may_be_waits_for_room(
    full: Path, launch: LaunchPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    (full / "squeue.out").write_text("7|RUNNING|None|2026-11-30T12:00:00|/home/job.sh\n")
    assert send(launch) == "44"
    assert times_sent(full) == 4
    assert capsys.readouterr().err.count("(AssocMaxSubmitJobLimit)") == 1


def test_a_job_that_alone_is_more_than_may_be_is_refused(full: Path, launch: LaunchPlan) -> None:
    with pytest.raises(SubmissionRefused, match="AssocMaxSubmitJobLimit"):
        send(launch)
    assert times_sent(full) == 1
    assert not launch.folder.root.exists()


def test_a_sweep_does_not_wait_while_its_first_tasks_run(full: Path, launch: LaunchPlan) -> None:
    """They would be cancelled, with all that they have saved, when the rest cannot be sent."""
    (full / "squeue.out").write_text("7_0|RUNNING|None|2026-11-30T12:00:00|/home/job.sh\n")
    (full / "sbatch.1.out").write_text("Submitted batch job 7\n")
    arrays = [("first", launch), ("second", launch)]
    with (
        pytest.raises(SubmissionRefused, match="AssocMaxSubmitJobLimit"),
        new_run_folder(launch, ""),
    ):
        submit_arrays(arrays)
    assert times_sent(full) == 2
    assert "scancel\t" in (full / "calls").read_text()


def interrupt_sbatch(fake: Path, words: list[str], tmp_path: Path, *, again: bool = False) -> str:
    """Ctrl-C at ``relight`` while sbatch, which has sent the job, has not answered yet, and while
    it looks for that job; what is said."""
    (fake / "sbatch.sleep").write_text("3")
    (fake / "sbatch.err").unlink()
    relight = Path(sys.executable).with_name("relight")
    process = subprocess.Popen([relight, *words], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not (fake / "sbatch.blocked").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder,) = folders(tmp_path)
    (fake / "squeue.out").write_text(f"43|PENDING|Priority|N/A|{folder}/job.sh\n")
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "looking for a job" in process.stderr.readline()
    if again:
        process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    return complaints


@pytest.fixture
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    (tmp_path / "job.yaml").write_text("command: [a]\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    return {"submit": ["submit", "job.yaml"], "sbatch": ["sbatch", "job.sh"]}[request.param]


BOTH = pytest.mark.parametrize("words", ["submit", "sbatch"], indirect=True)


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home" / "runs").glob("*"))


@BOTH
def test_an_interrupted_submission_leaves_neither_job_nor_folder(
    fake: Path, words: list[str], tmp_path: Path
) -> None:
    interrupt_sbatch(fake, words, tmp_path)
    assert "scancel\t43" in (fake / "calls").read_text()
    assert folders(tmp_path) == []


@BOTH
def test_when_nobody_waits_for_the_search_the_folder_stays(
    fake: Path, words: list[str], tmp_path: Path
) -> None:
    assert "its run folder" in interrupt_sbatch(fake, words, tmp_path, again=True)
    (folder,) = folders(tmp_path)
    assert (folder / "job.sh").exists()


def test_what_fails_after_the_job_was_sent_leaves_its_folder(
    fake: Path, launch: LaunchPlan
) -> None:
    (fake / "sbatch.1.out").write_text("Submitted batch job 43\n")
    with suppress(KeyboardInterrupt), new_run_folder(launch, "command: a") as folder:
        note_jobs(folder, [submit(launch, pauses_s=AT_ONCE)])
        raise KeyboardInterrupt
    assert job_ids(find_run("43").folder) == ["43"]
