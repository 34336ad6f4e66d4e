"""The ``relight`` command as a process: a mistake gets one clear message, and leaves nothing.

Its length is the number of verbs, and of mistakes.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from relight.errors import UsageError
from relight.launcher.cli.main import relight as commands
from relight.launcher.clusters.slurm.client import SlurmClient
from relight.launcher.dependencies import Unmet, unmet

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
RELIGHT = Path(sys.executable).with_name("relight")
SPEC = "name: hi\ncommand: [echo, hello]\n"

Relight = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    folder = tmp_path / "fake"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def relight(tmp_path: Path, fake: Path, home: Path) -> Relight:
    work = tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "RELIGHT_HOME": str(home), "FAKE_SLURM": str(fake)}

    def call(*arguments: str, slurm: bool = True) -> subprocess.CompletedProcess[str]:
        path = f"{FAKE_BIN}:{env['PATH']}" if slurm else "/nowhere"
        return subprocess.run(
            [RELIGHT, *arguments],
            env={**env, "PATH": path},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def spec(tmp_path: Path, text: str = SPEC) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return str(path)


def assert_refused(
    result: subprocess.CompletedProcess[str], home: Path, *parts: str, code: int = 2
) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert result.stdout == ""
    assert [path for path in home.rglob("*") if path.name != "runs"] == []


@pytest.mark.parametrize("verb", ["submit", "plan", "run"])
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("command: [a", "job.yaml:1: not YAML"),
        (
            "command: a\nresorces: {}",
            "job.yaml:2: unknown key 'resorces'; did you mean 'resources'?",
        ),
        ("command: a\nresources: {memory: 8XB}", "job.yaml:2: resources.memory: '8XB'"),
    ],
)
def test_bad_spec(
    relight: Relight, tmp_path: Path, home: Path, fake: Path, verb: str, text: str, part: str
) -> None:
    assert_refused(relight(verb, spec(tmp_path, text)), home, part)
    assert not (fake / "calls").exists()


@pytest.mark.parametrize("verb", ["submit", "plan", "run"])
def test_missing_file(relight: Relight, home: Path, verb: str) -> None:
    assert_refused(relight(verb, "nothing.yaml"), home, "cannot read nothing.yaml: No such file")


@pytest.mark.parametrize("verb", ["plan", "submit", "run"])
def test_a_secret_that_is_not_there(
    relight: Relight, tmp_path: Path, home: Path, verb: str
) -> None:
    path = spec(tmp_path, f"{SPEC}secrets: {{KEY: {{file: {tmp_path}/no-such-key}}}}\nnodes: 4\n")
    result = relight(verb, path)
    assert_refused(result, home, "secrets.KEY.file: ", "no-such-key", "unknown key 'nodes'")
    assert result.stderr.count("relight: ") == 2, "each fault says where it is from"
    line = len(SPEC.splitlines()) + 1
    assert f"{path}:{line}: secrets" in result.stderr


def test_no_slurm(relight: Relight, tmp_path: Path, home: Path) -> None:
    result = relight("submit", spec(tmp_path), slurm=False)
    assert_refused(result, home, "no Slurm here", "relight run")


def test_sbatch_refuses(relight: Relight, tmp_path: Path, home: Path, fake: Path) -> None:
    reason = "Batch job submission failed: Invalid account or account/partition combination"
    (fake / "sbatch.err").write_text(f"sbatch: error: {reason}\n")
    (fake / "sbatch.rc").write_text("1")
    result = relight("submit", spec(tmp_path))
    assert_refused(result, home, f"Slurm refused the job: {reason}", "nothing was submitted")
    assert result.stderr.count(reason) == 1


def test_slurm_commands_without_a_cluster(
    relight: Relight, tmp_path: Path, home: Path, fake: Path
) -> None:
    (fake / "sbatch.err").write_text(
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: fatal: Could not establish a configuration source\n"
    )
    (fake / "sbatch.rc").write_text("1")
    result = relight("submit", spec(tmp_path))
    assert_refused(result, home, "finds no cluster", "relight run")


def test_submit(relight: Relight, tmp_path: Path, home: Path, fake: Path) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    result = relight("submit", spec(tmp_path), "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    run_dir = Path(answer["run_dir"])
    assert answer == {
        "run_id": run_dir.name,
        "job_id": "42",
        "run_dir": str(home / "runs" / run_dir.name),
    }
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    for name in ("spec.yaml", "plan.json", "job.sh"):
        assert stat.S_IMODE((run_dir / name).stat().st_mode) == 0o600
    assert (run_dir / "spec.yaml").read_text() == SPEC
    planned = json.loads((run_dir / "plan.json").read_text())
    assert (planned["version"], planned["cluster"]) == (1, "slurm")
    (sent,) = (run_dir / "submitit").glob("*_submission.sh")
    assert sent.read_text() == (run_dir / "job.sh").read_text()


def end(run_dir: Path, state: str) -> None:
    verdict = {"state": state, "exit_code": 1, "cause": "", "reason": "", "tail": [], "time": 0}
    (run_dir / "verdict.json").write_text(json.dumps(verdict))


def test_a_lost_answer_of_sbatch_is_looked_up(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "sbatch.err").write_text("sbatch: error: Socket timed out on send/recv operation")
    (fake / "sbatch.rc").write_text("1")
    (fake / "squeue.out").write_text("43|PENDING|Priority\n")
    result = relight("submit", spec(tmp_path), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["job_id"] == "43"
    assert (fake / "sbatch.count").read_text().strip() == "1"


def test_a_run_dir_that_exists(relight: Relight, tmp_path: Path, home: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "precious").touch()
    result = relight("submit", spec(tmp_path, f"command: a\nrun_dir: {taken}"))
    assert_refused(result, home, "exists")
    assert (taken / "precious").exists()


def test_plan_writes_nothing(relight: Relight, tmp_path: Path, home: Path, fake: Path) -> None:
    result = relight("plan", spec(tmp_path), slurm=False)
    assert result.returncode == 0
    assert result.stdout.startswith("#!/bin/bash\n")
    (warning,) = result.stderr.splitlines()
    assert "'echo' is no program here" in warning, "without a PATH nothing is"
    assert not home.exists()
    assert not (fake / "calls").exists()


def test_status_without_an_answer_is_unknown(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    run_id = json.loads(relight("submit", spec(tmp_path), "--json").stdout)["run_id"]

    def state(name: str) -> str:
        for answer_of_others in (tmp_path / "home").glob("queue-*.json"):
            answer_of_others.unlink()
        result = relight("status", name, "--json")
        assert result.returncode == 0, result.stderr
        answer = json.loads(result.stdout)
        assert answer["job_id"] == "42"
        return str(answer["state"])

    (fake / "squeue.out").write_text("42|PENDING|Priority\n")
    assert state(run_id) == state("hi-") == state("42") == "PENDING"
    (fake / "squeue.out").write_text("42|RUNNING|None\n")
    assert state(run_id) == "RUNNING"
    (fake / "squeue.out").write_text("")
    assert state(run_id) == "UNKNOWN"
    (fake / "squeue.rc").write_text("1")
    assert state(run_id) == "UNKNOWN"


def test_cancel(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    preempted = {"outcome": "RESTARTING", "reason": "goes on as job 43 (successor)"}
    line = {"place": 1, "time": 1.0, "kind": "action", "name": "Finish", "data": preempted}
    (Path(answer["run_dir"]) / "journal").mkdir()
    (Path(answer["run_dir"]) / "journal" / "42.0.jsonl").write_text(json.dumps(line) + "\n")
    (fake / "squeue.1.out").write_text("42|RUNNING|None\n")
    (fake / "squeue.2.out").write_text("42|COMPLETING|None\n43|PENDING|Dependency\n")
    result = relight("cancel", answer["run_id"], "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["jobs"] == ["42", "43"]
    assert (Path(answer["run_dir"]) / "CANCELLED").exists()
    assert json.loads(relight("status", "42", "--json").stdout)["state"] == "CANCELLED"
    calls = (fake / "calls").read_text()
    assert "scancel\t42\nsqueue" in calls
    assert "scancel\t43\nsqueue" in calls
    ends = [line.split("  ")[-1] for line in relight("history", "42").stdout.splitlines()][-4:]
    assert ends[0] == "RESTARTING: goes on as job 43 (successor)"
    assert ends[1:3] == ["", "while no attempt ran"]
    assert ends[3] == "CANCELLED: relight cancel was called; no supervisor was alive"


def test_cancel_after_the_verdict_ends_what_is_left(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    end(Path(answer["run_dir"]), "STOPPED")
    (fake / "squeue.1.out").write_text("43|PENDING|Dependency\n")
    (fake / "squeue.2.out").write_text("")
    result = relight("cancel", answer["run_id"], "--json")
    done = {"jobs": ["43"], "ended": True, "before": "STOPPED"}
    assert json.loads(result.stdout) == {"run_id": answer["run_id"], **done}
    assert "scancel\t43\n" in (fake / "calls").read_text()
    assert json.loads(relight("status", "42", "--json").stdout)["state"] == "STOPPED"


def test_one_squeue_for_all_runs(relight: Relight, tmp_path: Path, fake: Path) -> None:
    for job in (42, 43, 44):
        (fake / "sbatch.out").write_text(f"Submitted batch job {job}\n")
        relight("submit", spec(tmp_path))
    (fake / "squeue.out").write_text(
        "42|RUNNING|None|2026-11-30T01:00:00|/x\n43|PENDING|Priority|N/A|/x\n"
    )
    listed = json.loads(relight("status", "--json").stdout)
    assert [run["state"] for run in listed] == ["RUNNING", "PENDING", "UNKNOWN"]
    assert "higher priority" in listed[1]["waits_for"]
    assert (fake / "squeue.count").read_text().strip() == "1"
    heading, *lines = relight("status").stdout.splitlines()
    assert heading.split() == ["RUN", "STATE", "JOB", "WAITS", "FOR"], "empty columns go"
    assert [line.split()[0] for line in lines] == [run["run_id"] for run in listed]


def test_hold_and_release_of_a_job_that_waits(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    (fake / "squeue.out").write_text("42|PENDING|Priority\n")
    assert "is held" in relight("hold", answer["run_id"]).stdout
    assert "42" in relight("release", answer["run_id"]).stdout
    calls = (fake / "calls").read_text()
    assert "scontrol\thold\t42\n" in calls
    assert "scontrol\trelease\t42\n" in calls
    assert not (Path(answer["run_dir"]) / "HELD").exists()


def test_hold_of_a_script_says_what_the_queue_says(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\necho hello\n")
    assert relight("sbatch", str(tmp_path / "job.sh")).returncode == 0
    for call, listed in enumerate(("42|RUNNING|None\n", "42|COMPLETING|None\n"), 1):
        (fake / f"squeue.{call}.out").write_text(listed)
    (fake / "squeue.3.out").write_text("42|PENDING|JobHeldUser\n")
    held = relight("hold", "42")
    assert (held.returncode, "is held" in held.stdout) == (0, True), held.stderr
    assert "scontrol\trequeuehold\t42\n" in (fake / "calls").read_text()
    assert (fake / "squeue.count").read_text().strip() == "3"
    nothing = relight("hold", "42")
    assert (nothing.returncode, "nothing to hold" in nothing.stderr) == (1, True)
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    end(folder, "FAILED")
    for words, told in (("hold", "where its script put it"), ("ckpt ls", "name that folder")):
        refused = relight(*words.split(), "42")
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr
        assert "checkpoint.directory" not in refused.stderr, "a script cannot be given it"


def test_restart_ends_the_wait_of_a_requeued_job(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    (fake / "squeue.out").write_text("42|COMPLETING|BeginTime\n")
    assert "does not run now" in relight("restart", answer["run_id"]).stderr, "it is too early"
    (fake / "squeue.out").write_text("42|PENDING|BeginTime\n")
    jobs = FAKE_BIN.parents[1] / "22.05"
    (fake / "scontrol.out").write_text((jobs / "scontrol-show-job-running.txt").read_text())
    first = relight("restart", answer["run_id"])
    assert "may not start before the time that `--begin` gave it" in first.stderr
    assert "StartTime" not in (fake / "calls").read_text(), "its user wants it to wait"
    (fake / "scontrol.out").write_text((jobs / "scontrol-show-job-requeued.txt").read_text())
    assert relight("restart", answer["run_id"]).returncode == 0
    (asked,) = [line for line in (fake / "calls").read_text().splitlines() if "Start" in line]
    assert asked == "scontrol\tupdate\tJobId=42\tStartTime=now"


def test_a_run_that_waits_for_another(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    first = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    (fake / "squeue.out").write_text("42|RUNNING|None\n")
    (fake / "sbatch.out").write_text("Submitted batch job 50\n")
    after = f"after=[{first['run_id']}, 7]"
    done = relight("submit", spec(tmp_path), "--json", "--set", after)
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["run_dir"])
    assert "#SBATCH --dependency=afterok:7,afterany:42\n" in (folder / "job.sh").read_text()
    assert json.loads((folder / "plan.json").read_text())["run"]["after"] == [first["run_dir"]]
    assert (Path(first["run_dir"]) / "dependents" / "50").exists()
    end(Path(first["run_dir"]), "FAILED")
    refused = relight("submit", spec(tmp_path), "--set", after)
    assert (refused.returncode, "has ended as FAILED" in refused.stderr) == (2, True)
    refused = relight("submit", spec(tmp_path), "--set", "after=nothing")
    assert (refused.returncode, "no run 'nothing'" in refused.stderr) == (2, True)
    refused = relight("run", spec(tmp_path), "--set", after)
    assert (refused.returncode, "no queue to wait in" in refused.stderr) == (2, True)


SWEEP = "command: [a, '${sweep.n}']\nsweep: {n: [1, 2, 3]}\nat_once: 2\n"


def test_a_sweep_is_one_call_of_sbatch(relight: Relight, tmp_path: Path, fake: Path) -> None:
    (fake / "scontrol.out").write_text("MaxArraySize            = 1001\n")
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    grid = f"sweep: {{n: {list(range(40))}, m: {list(range(25))}}}"
    done = relight("submit", spec(tmp_path, SWEEP.replace("sweep: {n: [1, 2, 3]}", grid)), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["job_ids"], answer["tasks"]) == (["42"], 1000)
    assert (fake / "sbatch.count").read_text().strip() == "1"
    assert "#SBATCH --array=0-999%2\n" in (Path(answer["run_dir"]) / "job.sh").read_text()
    (fake / "squeue.out").write_text("42_[1-999%2]|PENDING|Priority\n42_0|RUNNING|None\n")
    told = json.loads(relight("status", answer["run_id"], "--json").stdout)
    assert (told["state"], told["tasks"]) == ("RUNNING", {"WAITING": 1000})
    for verb in (("restart",), ("logs", "-f")):
        refused = relight(*verb, answer["run_id"])
        assert (refused.returncode, "name one of its runs" in refused.stderr) == (2, True)
    for words in ("history", "replay", "interval", "ckpt ls", "ckpt prune", "preflight"):
        assert "name one of its runs" in refusal(answer["run_dir"], *words.split())


def refusal(run_dir: str, *words: str) -> str:
    """In this process, with the path for the run's name."""
    refused = CliRunner().invoke(commands, [*words, run_dir])
    assert isinstance(refused.exception, UsageError), refused.output
    return str(refused.exception)


def submitted_sweep(relight: Relight, tmp_path: Path, fake: Path) -> dict[str, str]:
    (fake / "scontrol.out").write_text("MaxArraySize            = 1001\n")
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer: dict[str, str] = json.loads(relight("submit", spec(tmp_path, SWEEP), "--json").stdout)
    return answer


def tasks_ended(root: str, numbers: range, state: str) -> None:
    for number in numbers:
        folder = Path(root) / "tasks" / str(number)
        folder.mkdir(parents=True)
        verdict = {"state": state, "exit_code": 0, "cause": "", "reason": "", "tail": []}
        (folder / "verdict.json").write_text(json.dumps({**verdict, "time": 0}))


def test_cancel_of_a_sweep_takes_the_whole_array(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    """As squeue lists it, with ``%``, scancel takes no id; and one of many may just have ended."""
    answer = submitted_sweep(relight, tmp_path, fake)
    root = answer["run_dir"]
    tasks_ended(root, range(1), "COMPLETED")
    (Path(root) / "tasks" / "1").mkdir()
    listed = (
        f"42_[2%2]|PENDING|Priority\n42_1|RUNNING|None\n45|PENDING|None|N/A|{root}/tasks/1/job.sh\n"
    )
    (fake / "squeue.1.out").write_text(listed)
    (fake / "squeue.2.out").write_text(listed)
    (fake / "squeue.3.out").write_text("42_1|COMPLETING|None\n")
    (fake / "scancel.1.err").write_text("scancel: error: Kill job error: Invalid job id specified")
    (fake / "scancel.1.rc").write_text("1")
    result = relight("cancel", answer["run_id"], "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["jobs"] == ["42", "45"]
    assert (fake / "calls").read_text().count("scancel\t42\t45\n") == 2, "asked again"
    assert (fake / "scancel.count").read_text().strip() == "2", "not while they end"
    marked = [(Path(root) / "tasks" / str(n) / "CANCELLED").exists() for n in (0, 1)]
    assert marked == [False, True]


def test_a_task_that_waits_is_cancelled_by_itself(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    answer = submitted_sweep(relight, tmp_path, fake)
    run_id, root = answer["run_id"], answer["run_dir"]
    (fake / "squeue.1.out").write_text("42_[1-2%2]|PENDING|Priority\n42_0|RUNNING|None\n")
    (fake / "squeue.2.out").write_text("42_[1%2]|PENDING|Priority\n42_0|RUNNING|None\n")
    done = relight("cancel", f"{run_id}_2")
    assert done.returncode == 0, done.stderr
    assert "scancel\t42_2\n" in (fake / "calls").read_text()
    assert json.loads(relight("status", f"{run_id}_2", "--json").stdout)["state"] == "CANCELLED"
    tasks_ended(root, range(1), "COMPLETED")
    told = json.loads(relight("status", run_id, "--json").stdout)
    assert told["tasks"] == {"COMPLETED": 1, "CANCELLED": 2}, (
        "one never started, and the queue is empty"
    )
    assert told["state"] == "FAILED"
    assert "no run" in relight("status", f"{run_id}_3").stderr


def test_cancel_of_a_sweep_that_is_done(relight: Relight, tmp_path: Path, fake: Path) -> None:
    answer = submitted_sweep(relight, tmp_path, fake)
    tasks_ended(answer["run_dir"], range(3), "COMPLETED")
    assert relight("cancel", answer["run_id"]).returncode == 0
    told = json.loads(relight("status", answer["run_id"], "--json").stdout)
    assert (told["state"], told["tasks"]) == ("COMPLETED", {"COMPLETED": 3})
    assert not (Path(answer["run_dir"]) / "CANCELLED").exists()


def start(run_dir: str, fake: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """As Slurm does when the dependency is fulfilled."""
    env = {
        **os.environ,
        "RELIGHT_HOME": str(home),
        "FAKE_SLURM": str(fake),
        "PATH": f"{FAKE_BIN}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "50",
    }
    argv = [sys.executable, "-m", "relight.launcher.supervise", run_dir]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_start_that_is_too_early(
    relight: Relight, tmp_path: Path, home: Path, fake: Path
) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    first = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    (fake / "squeue.out").write_text("42|RUNNING|None\n")
    word = f"after={first['run_id']}"
    second = json.loads(relight("submit", spec(tmp_path), "--json", "--set", word).stdout)
    (fake / "squeue.out").write_text("43|PENDING|Dependency\n")  # it goes on as another job
    (fake / "squeue.3.out").touch()  # no next job of the second run is there already
    (fake / "sbatch.out").write_text("51\n")
    job = FAKE_BIN.parents[1] / "22.05" / "scontrol-show-job-running.txt"
    (fake / "scontrol.out").write_text(job.read_text())
    early = start(second["run_dir"], fake, home)
    assert (early.returncode, "goes on as job 51" in early.stderr) == (75, True)
    assert "--dependency=afterany:50:43" in (fake / "calls").read_text()
    verdict = {"state": "STOPPED", "exit_code": 93, "cause": "", "reason": "", "tail": []}
    path = Path(first["run_dir"]) / "verdict.json"
    path.write_text(json.dumps({**verdict, "time": 0}))
    never = start(second["run_dir"], fake, home)
    assert (never.returncode, "has ended as STOPPED" in never.stderr) == (93, True)
    told = json.loads(relight("status", second["run_id"], "--json").stdout)
    assert (told["state"], "nothing" not in told["reason"]) == ("STOPPED", True)


def test_after_a_sweep_waits_for_all_its_tasks(
    relight: Relight, tmp_path: Path, home: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = submitted_sweep(relight, tmp_path, fake)
    root = Path(sweep["run_dir"])
    (fake / "squeue.out").write_text("42_[1-2%2]|PENDING|Priority\n42_0|RUNNING|None\n")
    (fake / "sbatch.out").write_text("Submitted batch job 50\n")
    word = f"after={sweep['run_id']}"
    second = json.loads(relight("submit", spec(tmp_path), "--json", "--set", word).stdout)
    assert "--dependency=afterany:42\n" in (Path(second["run_dir"]) / "job.sh").read_text()
    assert (root / "dependents" / "50").exists()
    (fake / "squeue.out").write_text(f"57|PENDING|None|N/A|{root}/tasks/1/job.sh\n")
    monkeypatch.setenv("FAKE_SLURM", str(fake))
    monkeypatch.setenv("PATH", f"{FAKE_BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("RELIGHT_HOME", str(home))
    assert unmet([str(root)], SlurmClient()) == Unmet(jobs=("57",)), "a task went on"
    (fake / "squeue.out").write_text("")
    tasks_ended(str(root), range(3), "COMPLETED")
    assert unmet([str(root)], SlurmClient()) is None, "it may start"
    (root / "tasks" / "1" / "verdict.json").unlink()
    (root / "tasks" / "1").rmdir()
    tasks_ended(str(root), range(1, 2), "FAILED")
    refused = relight("submit", spec(tmp_path), "--set", word)
    assert (refused.returncode, "has ended as FAILED" in refused.stderr) == (2, True)


def test_cancel_without_an_answer_keeps_the_mark(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    (fake / "sbatch.out").write_text("Submitted batch job 42\n")
    answer = json.loads(relight("submit", spec(tmp_path), "--json").stdout)
    (fake / "squeue.err").write_text("slurm_load_jobs error: Invalid user")
    (fake / "squeue.rc").write_text("1")
    result = relight("cancel", answer["run_id"])
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert (Path(answer["run_dir"]) / "CANCELLED").exists()
    assert not (Path(answer["run_dir"]) / "verdict.json").exists()


@pytest.mark.parametrize(
    "verb", ["status", "history", "logs", "cancel", "checkpoint", "restart", "hold", "attach"]
)
def test_no_such_run(relight: Relight, home: Path, verb: str) -> None:
    assert_refused(relight(verb, "nothing"), home, "no run 'nothing'")
    assert_refused(relight(verb, "./nothing"), home, "cannot open the run folder")


def test_another_users_run(relight: Relight, tmp_path: Path, home: Path) -> None:
    theirs = Path("/")  # root's, for everybody else
    if os.getuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
    assert_refused(relight("status", f"{theirs}/"), home, "belongs to another user")


def test_schema(relight: Relight) -> None:
    schema = json.loads(relight("schema").stdout)
    assert "command" in schema["properties"]
    assert schema["required"] == ["command"]
    assert schema["additionalProperties"] is False


def test_help_is_light() -> None:
    code = (
        "import sys; sys.argv = ['relight', '--help']\n"
        "from relight.launcher.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stderr.split())
    assert not loaded & {"pydantic", "submitit", "rich", "torch", "jinja2", "yaml", "h5py", "numpy"}
    assert "submit" in result.stdout
