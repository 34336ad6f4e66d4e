"""Steering and seeing a run on this machine: each verb, and what it makes of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stage.local import PATIENCE_S, RELIGHT, UNDISTURBED, UNTIL_TOLD, Run, below, wait_until


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Two ranks that save only when they are told to."""
    program = tmp_path / "program.py"
    program.write_text(UNTIL_TOLD.format(stop=str(tmp_path / "stop")))
    spec = tmp_path / "job.yaml"
    spec.write_text(
        f"name: t\ncommand: [{sys.executable}, {program}]\nresources: {{nodes: 2}}\n"
        "checkpoint: {interval: 1h}\nhealth: {preflight: off}\n"
    )
    run = Run(tmp_path / "home", str(spec))
    wait_until(lambda: isinstance(run.progress().get("step"), int))
    yield run
    (tmp_path / "stop").touch()  # a killed front would leave its run behind
    run.end()


def end(run: Run) -> None:
    """Let the program come to its end."""
    (run.folder.parents[2] / "stop").touch()
    assert run.end()[0] == 0


def begun(run: Run, generations: int) -> None:
    """Wait until so many generations have done steps."""
    wait_until(lambda: journal(run).count('"RanksStarted"') == generations)
    wait_until(lambda: isinstance(run.progress().get("step"), int))


def journal(run: Run) -> str:
    return "".join(path.read_text() for path in (run.folder / "journal").glob("*.jsonl"))


def test_checkpoint_saves_now(run: Run) -> None:
    said = json.loads(run.relight("checkpoint", "t-", "--json"))
    listed = json.loads(run.relight("ckpt", "ls", "t-", "--json"))["checkpoints"]
    assert (listed[0]["step"], listed[0]["condition"]) == (said["step"], "valid")
    assert said["step"] > 0
    end(run)
    assert journal(run).count('"RanksStarted"') == 1, "the ranks went on"


def test_restart_saves_and_starts_again_in_place(run: Run) -> None:
    assert "starts again" in run.relight("restart", "t-")
    begun(run, 2)
    end(run)
    told = journal(run)
    assert told.count('"RanksStarted"') == 2
    assert told.count('"AttemptStarted"') == 1
    assert "relight restart was called" in run.relight("history", "t-")
    assert run.relight("logs", "t-").count(UNDISTURBED) == 2


def test_restart_without_a_node_goes_elsewhere(run: Run) -> None:
    assert "there is no node n99" in refusal(run, "restart", "t-", "--exclude", "n99,node1")
    run.relight("restart", "t-", "--exclude", "node[1-1]")
    begun(run, 2)
    end(run)
    assert run.status()["excluded"] == ["node1"]
    assert run.status()["nodes"] == ["node0", "node2"]
    assert run.relight("logs", "t-").count(UNDISTURBED) == 2


def test_hold_and_resume(run: Run) -> None:
    assert "relight run --resume t-" in run.relight("hold", "t-")
    assert run.end()[0] == 75
    assert run.status()["state"] == "HELD"
    refused = refusal(run, "checkpoint", "t-")
    assert "does not run now (HELD: relight run --resume" in refused
    again = Run(run.folder.parents[1], "--resume", run.folder.name)
    begun(run, 2)
    end(again)
    assert run.relight("logs", "t-").count(UNDISTURBED) == 2


def test_follow_over_a_restart(run: Run, tmp_path: Path) -> None:
    home = str(run.folder.parents[1])
    follower = subprocess.Popen(
        [RELIGHT, "logs", "-f", "--rank", "1", "--grep", "^lost", "t-"],
        env={**os.environ, "RELIGHT_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    )
    run.relight("restart", "t-")
    begun(run, 2)
    end(run)
    out, _ = follower.communicate(timeout=PATIENCE_S)
    attempt = f"local-{run.folder.name[2:]}.0"
    assert out == f"==> attempt {attempt}, generation 2, rank 1 <==\n{UNDISTURBED}\n"
    assert run.relight("logs", "t-", "--attempt", "1", "--rank", "0").count(UNDISTURBED) == 1
    assert "there is no attempt '2'" in refusal(run, "logs", "t-", "--attempt", "2")
    assert "is no regular expression" in refusal(run, "logs", "t-", "--grep", "(")


def test_watch_ends_with_the_run(run: Run) -> None:
    home = str(run.folder.parents[1])
    watcher = subprocess.Popen(
        [RELIGHT, "status", "--watch", "--json", "t-"],
        env={**os.environ, "RELIGHT_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    first = watcher.stdout.readline()
    end(run)
    out, _ = watcher.communicate(timeout=PATIENCE_S)
    assert json.loads(first)["state"] == "RUNNING"
    assert json.loads(out.splitlines()[-1])["state"] == "COMPLETED"


def test_exec_runs_beside_the_ranks(run: Run, tmp_path: Path) -> None:
    command = ("sh", "-c", "echo $RELIGHT_RUN_ID in $PWD")
    assert run.relight("exec", "t-", "--", *command) == f"{run.folder.name} in {Path.cwd()}\n"
    assert "has 2 ranks" in refusal(run, "exec", "t-", "--rank", "2", "--", "true")
    assert "is none of the run's nodes" in refusal(run, "exec", "t-", "--node", "x", "--", "true")
    assert "no command 'no-such'" in refusal(run, "exec", "t-", "--", "no-such")
    looked_at = json.loads(run.relight("preflight", "t-", "--json"))
    assert list(looked_at["nodes"]) == ["node0"], "one machine is looked at once"
    assert looked_at["nodes"]["node0"]["results"]
    assert "are this machine" in refusal(run, "preflight", "t-", "--pairs")


def test_a_run_that_has_ended_is_not_steered(run: Run) -> None:
    end(run)
    for verb in ("checkpoint", "restart", "hold", "release"):
        assert "has ended (COMPLETED)" in refusal(run, verb, "t-")
    assert "holds no nodes now" in refusal(run, "exec", "t-", "--", "true")


def refusal(run: Run, *arguments: str) -> str:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run.relight(*arguments)
    assert "Traceback" not in caught.value.stderr
    assert caught.value.returncode == 2
    return str(caught.value.stderr)


SAVES_ITSELF = """\
import signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
step = int(Path("state.done").read_text()) if sys.argv[1:] == ["again"] else 0
print("begins with", step, flush=True)
while not Path("stop").exists():
    step += 1
    time.sleep(0.02)
    if told:
        told.clear()
        Path("state.new").write_text(str(step))
        Path("state.new").rename("state.done")
"""


def test_a_program_that_saves_by_itself(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SAVES_ITSELF)
    (tmp_path / "job.yaml").write_text(
        f"name: t\ncommand: [{sys.executable}, program.py]\n"
        f"resume: [{sys.executable}, program.py, again]\nworking_dir: {tmp_path}\n"
        "checkpoint: {signal: USR1, done: '*.done'}\nhealth: {preflight: off}\n"
    )
    run = Run(tmp_path / "home", str(tmp_path / "job.yaml"))
    try:
        wait_until(lambda: run.progress().get("phase") == "running")
        wait_until(lambda: "begins with 0" in run.relight("logs", "t-"))
        _rank(run).kill()  # it has saved nothing, so it begins again
        wait_until(lambda: run.relight("logs", "t-").count("begins with 0") == 2)
        assert "has saved" in run.relight("checkpoint", "t-")
        first = int((tmp_path / "state.done").read_text())
        run.relight("restart", "t-")
        wait_until(lambda: run.relight("logs", "t-").count("begins with") == 3)
        begun = int(run.relight("logs", "t-").split()[-1])
        assert begun > first, "it was told to save before it was restarted"
        (tmp_path / "stop").touch()
        assert run.end()[0] == 0
    finally:
        run.process.kill()
        run.end()


def _rank(run: Run) -> psutil.Process:
    words = below(psutil.Process(run.process.pid))
    return next(one for one in words if "program.py" in words[one])
