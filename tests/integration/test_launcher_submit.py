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
from click.testing import CliRunner, Result

from relight.launcher.cli.main import relight
from relight.launcher.clusters.slurm.lookup import SubmissionUnknown
from relight.launcher.clusters.slurm.submit import SubmissionRefused, submit
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
    tried = (launch.folder.root / "submitit").glob(".submission_file_*")
    assert len(list(tried)) == 1, "each try is a file; only that of the job stays"


def test_a_job_that_alone_is_more_than_may_be_is_refused(full: Path, launch: LaunchPlan) -> None:
    with pytest.raises(SubmissionRefused, match="AssocMaxSubmitJobLimit"):
        send(launch)
    assert times_sent(full) == 1
    assert not launch.folder.root.exists()


def test_a_job_that_fills_the_queue_itself_does_not_wait_for_itself(
    full: Path, launch: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in an array's task that submits the next stage."""
    in_task = {"JOB_ID": "8", "ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "1"}
    for name, value in in_task.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    (full / "squeue.out").write_text("7_1|RUNNING|None|2026-11-30T12:00:00|/home/job.sh\n")
    with pytest.raises(SubmissionRefused, match="AssocMaxSubmitJobLimit"):
        send(launch)
    assert times_sent(full) == 1


@pytest.fixture
def wide(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm that makes two arrays of three tasks, job 7 and job 8."""
    (fake / "scontrol.out").write_text("MaxArraySize            = 2\n")
    for number, job_id in ((1, 7), (2, 8)):
        (fake / f"sbatch.{number}.out").write_text(f"Submitted batch job {job_id}\n")
    (tmp_path / "wide.yaml").write_text("command: [a, '${sweep.n}']\nsweep: {n: [1, 2, 3]}\n")
    monkeypatch.chdir(tmp_path)
    return fake


def submit_wide(*words: str) -> Result:
    return CliRunner().invoke(relight, ["submit", "wide.yaml", *words])


def orders(fake: Path) -> list[str]:
    """What Slurm was asked to do, with the options of sbatch."""
    calls = [line.split("\t") for line in (fake / "calls").read_text().splitlines()]
    sent = [["sbatch", *call[1:-1]] if call[0] == "sbatch" else call for call in calls]
    asked = ("squeue", "sinfo", "show", "--oneliner")
    return [" ".join(words) for words in sent if not {*words[:2]} & {*asked}]


HELD = ["sbatch --hold", "sbatch --hold"]


def test_a_sweep_of_several_arrays_starts_when_all_are_there(wide: Path, tmp_path: Path) -> None:
    done = submit_wide("--json")
    assert done.exit_code == 0, done.output
    assert orders(wide) == [*HELD, "scontrol release 7,8"]
    (folder,) = folders(tmp_path)
    assert job_ids(find_run(folder.name).folder) == ["7", "8"]
    assert find_run(f"{folder.name[:-4]}_2").run_id == f"{folder.name}_2"
    assert find_run(f"{folder.name}_2").folder.root.joinpath("job_id").read_text() == "8_0\n"


def test_a_sweep_that_its_user_holds_stays_held(wide: Path) -> None:
    assert submit_wide("--set", "sbatch.hold=true").exit_code == 0
    assert orders(wide) == HELD


@pytest.mark.parametrize("queue", ["", "7_0|PENDING|JobHeldUser\n1|RUNNING|None\n"])
def test_no_task_has_begun_of_a_sweep_that_is_taken_back(
    wide: Path, tmp_path: Path, queue: str
) -> None:
    """They would be cancelled, with all that they have saved, when the rest cannot be sent; nor
    does the rest wait for room, which a held array never makes."""
    limit = (RECORDED / "25.11" / "sbatch-refused-submit-limit.txt").read_text()
    (wide / "sbatch.2.out").unlink()
    (wide / "sbatch.err").write_text(limit)
    (wide / "squeue.out").write_text(queue)
    refusal = str(submit_wide().exception)
    assert "refused array 2 of the sweep's 2" in refusal
    assert "AssocMaxSubmitJobLimit" in refusal
    assert "(job 7) was held, so that no task had started" in refusal
    assert orders(wide) == [*HELD, "scancel 7"]
    assert folders(tmp_path) == []


def test_a_sweep_that_is_not_released_keeps_its_folder(wide: Path, tmp_path: Path) -> None:
    (wide / "scontrol.2.err").write_text("scontrol: error: Access denied")
    (wide / "scontrol.2.rc").write_text("1")
    assert "`scontrol release 7,8` lets it start" in str(submit_wide().exception)
    (folder,) = folders(tmp_path)
    assert job_ids(find_run(folder.name).folder) == ["7", "8"]


def interrupt_sbatch(
    fake: Path,
    words: list[str],
    tmp_path: Path,
    *,
    by: signal.Signals = signal.SIGINT,
    again: bool = False,
) -> str:
    """Ctrl-C at ``relight``, or another end, while sbatch, which has sent the job, has not answered
    yet, and while it looks for that job; what is said."""
    (fake / "sbatch.sleep").write_text("10")
    (fake / "sbatch.err").unlink()
    program = Path(sys.executable).with_name("relight")
    process = subprocess.Popen([program, *words], cwd=tmp_path, text=True, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (fake / "sbatch.blocked").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder,) = folders(tmp_path)
    (fake / "squeue.out").write_text(f"43|PENDING|Priority|N/A|{folder}/job.sh\n")
    if again:
        (fake / "squeue.rc").write_text("1")  # or the search might be over before
    assert process.stderr is not None
    process.send_signal(by)
    assert "looking for a job" in process.stderr.readline()
    if again:
        process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert again or process.returncode == 128 + by
    return complaints


@pytest.fixture
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    (tmp_path / "job.yaml").write_text("command: [a]\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    return {"submit": ["submit", "job.yaml"], "sbatch": ["sbatch", "job.sh"]}[request.param]


BOTH = pytest.mark.parametrize("words", ["submit", "sbatch"], indirect=True)


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home" / "runs").glob("*"))


@pytest.mark.parametrize(
    ("words", "by"),
    [("submit", signal.SIGTERM), ("sbatch", signal.SIGHUP)],
    indirect=["words"],
)
def test_an_interrupted_submission_leaves_neither_job_nor_folder(
    fake: Path, words: list[str], by: signal.Signals, tmp_path: Path
) -> None:
    interrupt_sbatch(fake, words, tmp_path, by=by)
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
