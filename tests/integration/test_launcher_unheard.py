"""The verdict of a run whose job was cancelled while it waited, against fake Slurm commands."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relight.launcher.clusters.slurm.orphan import Claim, mark_path
from relight.launcher.launch_plan import Submitter
from relight.launcher.presence import read_facts
from relight.launcher.queue import Queue
from relight.launcher.run_creation import new_run_folder, write_sweep
from relight.launcher.runs import StoredRun, find_run, submitted_job
from relight.launcher.spec_file import load_spec
from relight.launcher.status import RunState, status
from relight.launcher.stored_plan import StoredPlan
from relight.launcher.sweep_plan import sweep_plan
from relight.launcher.unheard import newest_job
from relight.resilience.config import NotifyConfig, RunConfig
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise import standing
from relight.resilience.supervise.cluster import Restart
from relight.resilience.supervise.journal import Entry, JournalWriter
from relight.resilience.supervise.standing import read_verdict

DATA = Path(__file__).parents[1] / "data" / "slurm"
RUNNING = (DATA / "22.05" / "scontrol-show-job-running.txt").read_text()
JOB_ID = re.match(r"JobId=(\d+)", RUNNING)[1]  # type: ignore[index]
NO_SUCH_JOB = "slurm_load_jobs error: Invalid job id specified"


@dataclass
class Stage:
    """A run of one job that is not in the queue."""

    fake: Path
    run: StoredRun

    def answer(self, command: str, out: str = "", *, err: str = "", code: int = 0) -> None:
        for suffix, content in (("out", out), ("err", err), ("rc", str(code))):
            (self.fake / f"{command}.{suffix}").write_text(content)

    def state(self) -> RunState:
        return status(read_facts(self.run, Queue(ask=list))).state


@pytest.fixture
def stage(tmp_path: Path, run_config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Stage:
    fake, folder = tmp_path / "fake", RunFolder(run_config.run_dir)
    fake.mkdir()
    folder.journals.mkdir(parents=True, exist_ok=True)
    submitted_job(folder).write_text(JOB_ID)
    monkeypatch.setenv("FAKE_SLURM", str(fake))
    monkeypatch.setenv("PATH", f"{DATA / 'fake' / 'bin'}:{os.environ['PATH']}")
    return Stage(fake, StoredRun(folder, StoredPlan("slurm", run_config, "relight submit", 0.0)))


def test_a_job_that_was_cancelled_while_it_waited(stage: Stage) -> None:
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=CANCELLED"))
    assert stage.state() is RunState.CANCELLED
    verdict = read_verdict(stage.run.folder)
    assert verdict is not None
    assert JOB_ID in verdict.reason
    stage.answer("scontrol", err=NO_SUCH_JOB, code=1)
    assert stage.state() is RunState.CANCELLED, "for good, though Slurm has forgotten it"


def test_an_end_that_cannot_be_written_down_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(standing, "write_whole", read_only)
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=CANCELLED"))
    assert stage.state() is RunState.CANCELLED
    assert read_verdict(stage.run.folder) is None


def test_people_are_told_once_of_an_end_that_no_supervisor_saw(stage: Stage) -> None:
    told = stage.fake / "told"
    command = ("sh", "-c", f"cat >> {told}")
    config = replace(
        stage.run.plan.config,
        notify=NotifyConfig(on=("cancelled",), command=command),
        working_dir=stage.fake,
    )
    stage.run = replace(stage.run, plan=replace(stage.run.plan, config=config))
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=CANCELLED"))
    assert stage.state() is RunState.CANCELLED
    stage.run.folder.verdict.unlink()  # as seen by another process that looks at the same time
    assert stage.state() is RunState.CANCELLED
    (line,) = told.read_text().splitlines()
    message = json.loads(line)
    assert (message["run_id"], message["state"]) == (config.run_id, "CANCELLED")
    assert f"job {JOB_ID} was cancelled" in message["text"]


def test_accounting_remembers_it_longer(stage: Stage) -> None:
    stage.answer("scontrol", err=NO_SUCH_JOB, code=1)
    stage.answer("sacct", "CANCELLED by 1000\n")
    assert stage.state() is RunState.CANCELLED


def test_a_warden_has_sent_the_next_job(stage: Stage) -> None:
    """It is in the queue by now, though not in the answer that was read before."""
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=CANCELLED"))
    stage.answer("squeue", "99|PENDING|None\n")
    assert stage.state() is RunState.UNKNOWN
    assert read_verdict(stage.run.folder) is None


def test_a_job_that_failed_before_anything_of_ours_ran(stage: Stage) -> None:
    """As where its output file cannot be written; a run with a story is another matter."""
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=FAILED"))
    journal = stage.run.folder.journal(f"{JOB_ID}.0")
    journal.touch()
    assert stage.state() is RunState.UNKNOWN
    journal.unlink()
    assert stage.state() is RunState.FAILED
    verdict = read_verdict(stage.run.folder)
    assert verdict is not None
    assert f"job {JOB_ID} failed before its script began" in verdict.reason


@pytest.mark.parametrize("state", ["PENDING", "NODE_FAIL", "COMPLETING"])
def test_what_else_is_no_end(stage: Stage, state: str) -> None:
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", f"JobState={state}"))
    assert stage.state() is RunState.UNKNOWN
    assert read_verdict(stage.run.folder) is None


@pytest.mark.parametrize("silent", ["scontrol", "sacct"])
def test_silence_is_no_end(stage: Stage, silent: str) -> None:
    stage.answer("scontrol", err=NO_SUCH_JOB, code=1)
    stage.answer(silent, err="Slurm accounting storage is disabled", code=1)
    assert stage.state() is RunState.UNKNOWN
    assert read_verdict(stage.run.folder) is None


def test_the_newest_of_all_jobs(stage: Stage) -> None:
    folder = stage.run.folder
    journal = JournalWriter(folder.journal("7.0"))
    journal.write([Entry(1.0, "event", "AllocationArranged", {"mode": "successor", "job_id": "9"})])
    journal.close()
    submitted_job(folder).write_text("7")
    assert newest_job(folder) == "9"
    mark = mark_path(folder, "9.0")
    mark.parent.mkdir(parents=True)
    Claim(mark, "n2.1", lambda: 0.0).arranged(Restart("successor", "10"))
    assert newest_job(folder) == "10"


def test_a_list_of_runs_asks_of_none_and_a_watch_seldom(stage: Stage) -> None:
    stage.answer("scontrol", RUNNING.replace("JobState=RUNNING", "JobState=FAILED"))
    queue = Queue(ask=list)
    for _ in range(3):
        read_facts(stage.run, queue, alone=False)
    assert not (stage.fake / "calls").exists()
    for _ in range(3):
        read_facts(stage.run, queue)
    assert (stage.fake / "scontrol.count").read_text() == "1\n"


@pytest.fixture
def sweep(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Four runs of which none has started, and a program that is told of their ends."""
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    told = f"notify: {{on: [failed, cancelled], command: [sh, -c, 'cat >> {stage.fake}/told']}}"
    (tmp_path / "lm.yaml").write_text(f"command: a\nsweep: {{n: [1, 2, 3, 4]}}\n{told}\n")
    spec = load_spec(tmp_path / "lm.yaml", (), "0a1b2c")[0]
    facts = Submitter(
        run_id="lm-0a1b2c",
        runs_dir=tmp_path / "runs",
        working_dir=tmp_path,
        python="python",
        version="0",
        made_by="test",
    )
    made = sweep_plan(spec, spec, facts, (), 1001)
    with new_run_folder(made.arrays[0][1], "") as folder:
        write_sweep(folder, made.points, made.task)
    submitted_job(folder).write_text("9\n")
    return Stage(stage.fake, find_run("lm-0a1b2c"))


def in_array(tasks: str, state: str) -> str:
    job = f"JobId=11 ArrayJobId=9 ArrayTaskId={tasks} ArrayTaskThrottle=2 "
    return RUNNING.replace(f"JobId={JOB_ID} ", job).replace("JobState=RUNNING", f"JobState={state}")


def messages(stage: Stage) -> dict[str, str]:
    told = (json.loads(line) for line in (stage.fake / "told").read_text().splitlines())
    return {one["run_id"]: one["cause"] for one in told}


@pytest.mark.parametrize(
    ("accounted", "cause"), [("", "cancelled"), ("FAILED\n", "launch failure")]
)
def test_a_run_of_a_sweep_that_never_started_is_told_while_others_run(
    sweep: Stage, accounted: str, cause: str
) -> None:
    """A task that is cancelled while its array waits leaves no record in Slurm."""
    sweep.answer("squeue", "9_[2-3%2]|PENDING|Priority\n9_0|RUNNING|None\n")
    sweep.answer("scontrol", in_array("2-3%2", "PENDING") + in_array("0", "RUNNING"))
    sweep.answer("scontrol.2", "Job 9_1 not found\n", code=1)
    sweep.answer("sacct", accounted)
    ended = status(read_facts(find_run("lm-0a1b2c_1"), Queue(ask=list))).state
    assert ended is (RunState.FAILED if accounted else RunState.CANCELLED)
    assert messages(sweep) == {"lm-0a1b2c_1": cause}
    assert status(read_facts(find_run("lm-0a1b2c_2"), Queue(ask=list))).state is RunState.UNKNOWN
    assert messages(sweep) == {"lm-0a1b2c_1": cause}, "the other waits"


def test_the_rest_of_a_sweep_is_told_of_each_run(sweep: Stage) -> None:
    sweep.answer("squeue")
    sweep.answer("scontrol", in_array("0,2-3%2", "CANCELLED") + in_array("1", "FAILED"))
    for _ in range(2):
        assert sweep.state() is RunState.FAILED
        assert messages(sweep) == {
            "lm-0a1b2c_0": "cancelled",
            "lm-0a1b2c_1": "launch failure",
            "lm-0a1b2c_2": "cancelled",
            "lm-0a1b2c_3": "cancelled",
        }
    assert len((sweep.fake / "told").read_text().splitlines()) == 4, "once each"
