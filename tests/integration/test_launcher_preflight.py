"""``relight preflight``: the list, this machine, and the nodes of a run behind a fake Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from relight.errors import UsageError
from relight.launcher.cli.preflight import command
from relight.launcher.preflight import Examination
from relight.resilience.config import RunConfig
from relight.resilience.health.catalogue import ACTIVE, CHECKS
from relight.resilience.health.preflight import write_report
from relight.resilience.health.result import NodeReport
from relight.resilience.ledger.record import Identity

DATA = Path(__file__).parents[1] / "data" / "slurm"
RELIGHT = Path(sys.executable).with_name("relight")
JOB = "JobId=4242 JobName=hi UserId=me(1) JobState=RUNNING Reason=None Restarts=0 NodeList=n[1-2]\n"
# In the place of srun: the program that follows "--", once as each node.
SRUN = """#!/bin/bash
while [ "$1" != -- ]; do echo "$1" >> "$FAKE_SLURM/srun.options"; shift; done
shift
for node in n1 n2; do RELIGHT_NODE=$node "$@"; done
"""

Relight = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "sbatch.out").write_text("Submitted batch job 4242\n")
    (folder / "squeue.out").write_text("4242|RUNNING|None\n")
    (folder / "scontrol.out").write_text(JOB)
    return folder


@pytest.fixture
def relight(tmp_path: Path, fake: Path) -> Relight:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "srun").write_text(SRUN)
    (bin_dir / "srun").chmod(0o755)
    path = f"{bin_dir}:{DATA / 'fake' / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "RELIGHT_HOME": str(tmp_path), "FAKE_SLURM": str(fake), "PATH": path}

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [RELIGHT, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def submit(relight: Relight, tmp_path: Path, command: str) -> str:
    spec = tmp_path / "job.yaml"
    spec.write_text(f"name: hi\ncommand: [echo]\nhealth: {{site_command: '{command}'}}\n")
    run_id: str = json.loads(relight("submit", "--json", str(spec)).stdout)["run_id"]
    return run_id


def test_the_list(relight: Relight, tmp_path: Path) -> None:
    listed = json.loads(relight("preflight", "--list", "--json").stdout)
    assert [check["name"] for check in listed] == [check.name for check in (*CHECKS, *ACTIVE)]
    assert {"reads", "threshold", "worst", "typical_s", "limits"} <= set(listed[0])
    ours = "health: {checks: {load: {per_cpu: 4}, swap: off}}\n"
    (tmp_path / "relight.yaml").write_text(ours)
    told = relight("preflight", "--list").stdout
    assert "limit: per_cpu = 4 runnable tasks per processor (1.5 by default)" in told
    assert "swap  (at worst WARN, about 0.01 s, repeated while ranks run, off)" in told


def test_this_machine(relight: Relight, tmp_path: Path) -> None:
    target = tmp_path / "checkpoints"
    absent = relight("preflight", "--directory", str(target / "typo"), code=1).stdout
    assert f"disk               FAIL_JOB  {target}/typo is not there" in absent
    assert not target.exists()
    target.mkdir()
    report = json.loads(relight("preflight", "--json", "--directory", str(target)).stdout)
    outcomes = {result["check"]: result["outcome"] for result in report["results"]}
    assert outcomes["disk"] == "PASS"
    assert not list(target.iterdir())


def test_this_machine_when_it_is_bad(relight: Relight, tmp_path: Path) -> None:
    (tmp_path / "relight.yaml").write_text("health: {min_free_memory: 4096TB}\n")
    said = relight("preflight", "--directory", str(tmp_path), code=1).stdout
    assert "memory             FAIL_NODE" in said
    (tmp_path / "relight.yaml").write_text("health: {site_command: exit 127, on_unknown: fail}\n")
    assert "UNKNOWN" in relight("preflight", "--directory", str(tmp_path), code=1).stdout


def test_the_nodes_of_a_run(relight: Relight, tmp_path: Path, fake: Path) -> None:
    run = submit(relight, tmp_path, 'test "$RELIGHT_NODE" != n2')
    done = relight("preflight", run, code=1)
    assert "━" not in done.stderr, "a bar is for somebody who looks"
    assert "n1: no fault" in done.stdout
    assert "FAIL_NODE n2: site_command: test" in done.stdout
    assert "--jobid=4242" in (fake / "srun.options").read_text()
    answer = json.loads(relight("preflight", run, "--json", code=1).stdout)
    assert list(answer["bad"]) == ["n2"]
    assert set(answer["nodes"]) == {"n1", "n2"}


def test_results_are_told_as_they_come(tmp_path: Path, run_config: RunConfig) -> None:
    def report(node: str) -> None:
        found = NodeReport(node=node, results=(), identity=Identity(), started=0.0, seconds=1.0)
        write_report(tmp_path, found)

    with subprocess.Popen(["sleep", "600"]) as step:
        nodes = ("n1", "n2", "n3")
        coming = Examination(run_config, 60.0, nodes, tmp_path, step).reports()
        for node in ("n2", "n1"):
            report(node)
            assert next(coming).node == node, "the step is still there, and others are missing"
        step.kill()
        assert list(coming) == []


def test_nodes_that_do_not_answer_are_unclear(relight: Relight, tmp_path: Path, fake: Path) -> None:
    run = submit(relight, tmp_path, "true")
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexit 1\n")
    answer = json.loads(relight("preflight", run, "--json", code=1).stdout)
    assert answer["bad"] == {}
    assert "no report came" in json.dumps(answer["warnings"])


def test_its_step_ends_with_it_however_that_ends(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    run = submit(relight, tmp_path, "true")
    os.mkfifo(begun := tmp_path / "begun")
    srun = tmp_path / "bin" / "srun"
    srun.write_text(f"#!/bin/sh\necho $$ > {begun}\nexec sleep 600\n")
    env = {**os.environ, "RELIGHT_HOME": str(tmp_path), "FAKE_SLURM": str(fake)}
    env["PATH"] = f"{srun.parent}:{DATA / 'fake' / 'bin'}:{os.environ['PATH']}"
    for option in ("--active", "--pairs"):
        with subprocess.Popen([RELIGHT, "preflight", run, option], env=env) as looking:
            step = psutil.Process(int(begun.read_text()))
            looking.kill()
        with contextlib.suppress(psutil.TimeoutExpired):  # a zombie, where nobody waits for it
            step.wait(60)
        assert not step.is_running() or step.status() == psutil.STATUS_ZOMBIE


def test_a_run_that_holds_no_nodes(relight: Relight, tmp_path: Path, fake: Path) -> None:
    run = submit(relight, tmp_path, "true")
    (fake / "squeue.out").write_text("4242|PENDING|Resources\n")
    assert "holds no nodes now" in relight("preflight", run, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairs"], "--pairs needs a RUN"),
        (["a", "--pairs", "--active"], "--pairs does not go with --active"),
        (["a", "--directory", "/tmp"], "RUN does not go with --directory"),
        (["a", "--list", "--active"], "--list does not go with RUN and --active"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command.main(arguments, standalone_mode=False)


def test_the_network_between_the_nodes_of_a_run(
    relight: Relight, tmp_path: Path, fake: Path
) -> None:
    run = submit(relight, tmp_path, "true")
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexit 1\n")
    answer = json.loads(relight("preflight", run, "--pairs", "--json").stdout)
    assert answer == {"bad": {}, "unclear": ["n1", "n2"], "rates": {"n1+n2": None}}
    assert "unclear" in relight("preflight", run, "--pairs").stdout
    ends = f"#!/bin/sh\necho '4242|COMPLETED|None' > {fake}/squeue.out\nexit 1\n"
    (tmp_path / "bin" / "srun").write_text(ends)
    assert "ended during the test" in relight("preflight", run, "--pairs", code=2).stderr
