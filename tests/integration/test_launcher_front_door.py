"""What a newcomer may meet: no cluster, a lost directory, a full disk. A message, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
RELIGHT = Path(sys.executable).with_name("relight")
NO_CLUSTER = (
    "scontrol: error: fetch_config: DNS SRV lookup failed\n"
    "scontrol: fatal: Could not establish a configuration source\n"
)

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in a folder of its own, where `relight` is this one."""
    (tmp_path / "work").mkdir()
    (tmp_path / "job.yaml").write_text("name: hi\ncommand: [echo, hello]\n")
    own = {"RELIGHT_HOME": str(tmp_path / "home"), "FAKE_SLURM": str(tmp_path)}

    def call(text: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = f"{FAKE_BIN}:{RELIGHT.parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["sh", "-c", text],
            env={**os.environ, "PATH": path, **own, **more},
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def no_cluster(tmp_path: Path) -> None:
    for name in ("scontrol", "sbatch"):
        (tmp_path / f"{name}.err").write_text(NO_CLUSTER)
        (tmp_path / f"{name}.rc").write_text("1")


@pytest.mark.parametrize("verb", ["plan", "run", "submit", "verify-resume"])
def test_a_current_directory_that_is_gone(shell: Shell, tmp_path: Path, verb: str) -> None:
    result = shell(f"rmdir ../work; exec relight {verb} {tmp_path}/job.yaml")
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "relight: the current directory does not exist any more: change to another one"
    )


@pytest.mark.parametrize("words", ["schema", "status", "nodes ls --json", "preflight --list"])
def test_an_output_that_is_full(shell: Shell, words: str) -> None:
    result = shell(f"exec relight {words} > /dev/full")
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "relight: the output, or a file, cannot be written: No space left on device"
    )


def test_runs_that_cannot_be_read(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "runs").write_text("no folder")  # root may read what is forbidden
    for words in ("status", "history hi", "cancel hi"):
        result = shell(f"exec relight {words}")
        assert result.returncode == 2
        assert "cannot read the runs in" in result.stderr
        assert "RELIGHT_HOME" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", ["doctor", "nodes exclude n1 --reason x", "submit ../job.yaml"])
def test_no_cluster_is_said_alike(shell: Shell, tmp_path: Path, words: str) -> None:
    no_cluster(tmp_path)
    result = shell(f"exec relight {words}")
    assert result.returncode == 2
    assert "finds no cluster" in result.stderr
    assert "`relight run`" in result.stderr
    assert "DNS SRV" not in result.stderr


def test_a_script_is_not_kept_without_a_cluster(shell: Shell, tmp_path: Path) -> None:
    no_cluster(tmp_path)
    refused = shell("relight sbatch --wrap true")
    assert refused.returncode == 1, "as sbatch does"
    assert "sbatch is here, but finds no cluster" in refused.stderr
    assert not (tmp_path / "home").exists()
    assert (tmp_path / "calls").read_text().count("\n") == 1, "nobody looks for a job"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("working_dir: /nowhere", "working_dir: /nowhere is no directory"),
        ("command: [no-such-program]", "command: 'no-such-program' is no program here"),
        ("command: [../job.yaml]", "job.yaml is not executable: `chmod +x` it"),
        ("container: {image: no.sif}", "no.sif is not there"),
        ("container: {image: 'docker://a'}", "apptainer is not on this machine's PATH"),
        ("code: snapshot", "job.yaml: code: snapshot copies a git work tree, and git finds none"),
        ("command: echo ${HOME}", "'${HOME}' has no meaning in it"),
        ("command: echo ~/data", "'~/data' has no meaning in it"),
    ],
)
def test_what_cannot_run_is_refused_and_leaves_nothing(
    shell: Shell, tmp_path: Path, line: str, said: str
) -> None:
    (tmp_path / "job.yaml").write_text(line if "command" in line else f"command: [echo]\n{line}")
    refused = shell(f"relight run {tmp_path}/job.yaml")
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "home").exists()


def test_what_a_shell_is_to_put_in_stays(shell: Shell, tmp_path: Path) -> None:
    for command in ("bash -c 'echo ${HOME} | wc -l'", "awk '{print $1}' file", "echo \\$5"):
        (tmp_path / "job.yaml").write_text(f"command: {command}\n")
        planned = shell(f"relight plan {tmp_path}/job.yaml")
        assert planned.returncode == 0, planned.stderr


def test_help_of_sbatch_needs_no_cluster(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "sbatch.out").write_text("sbatch's own words\n")
    assert shell("relight sbatch --help").stdout.startswith("sbatch's own words\n\nOf relight:")
    no_cluster(tmp_path)
    (tmp_path / "sbatch.out").unlink()
    helped = shell("relight sbatch --help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--relight-dry-run" in helped.stdout
    assert shell("relight sbatch --version").returncode == 1


def test_a_run_is_called_like_its_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "my sweep.yaml").write_text("command: [echo, '${run.id}']\n")
    planned = shell("relight plan '../my sweep.yaml'")
    assert "#SBATCH --job-name=my-sweep-" in planned.stdout, planned.stderr
    named = shell("relight plan '../my sweep.yaml' --set name=other")
    assert "#SBATCH --job-name=other-" in named.stdout


@pytest.mark.parametrize(
    ("word", "such_as"),
    [
        ("resources.time=0", "90s"),
        ("resources.memory=8", "8GB"),
        ("checkpoint.interval=5", "20 steps"),
    ],
)
def test_an_amount_without_a_unit(shell: Shell, word: str, such_as: str) -> None:
    refused = shell(f"relight plan ../job.yaml --set {word}")
    assert refused.returncode == 2
    assert "is not text with a unit; write for example" in refused.stderr
    assert such_as in refused.stderr


def test_cancel_says_whether_it_did_anything(shell: Shell, tmp_path: Path) -> None:
    shell("relight run ../job.yaml --json")
    (run,) = (tmp_path / "home" / "runs").iterdir()
    again = shell(f"relight cancel {run.name}")
    assert again.stdout == f"run {run.name} had ended already, as COMPLETED\n"
    (run / "verdict.json").unlink()
    cancelled = shell(f"relight cancel {run.name}").stdout
    assert cancelled.startswith(f"run {run.name} is cancelled and has ended")


def test_nodes_by_hand_as_json(shell: Shell) -> None:
    words = "n1 --cluster c --json"
    excluded = json.loads(shell(f"relight nodes exclude {words} --reason hot --for 1h").stdout)
    assert (excluded["cluster"], excluded["node"]) == ("c", "n1")
    released = json.loads(shell(f"relight nodes release {words}").stdout)
    assert released == {"node": "n1", "clusters": ["c"]}


def test_a_damaged_run_does_not_hide_the_others(shell: Shell, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "sbatch.out").write_text(f"Submitted batch job {number}\n")
        assert shell("relight submit ../job.yaml").returncode == 0
    damaged, _ = (tmp_path / "home" / "runs").iterdir()
    (damaged / "verdict.json").write_text("")
    listed = shell("relight status")
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == 3
    assert f"repair: {damaged}/verdict.json is damaged" in listed.stdout
    alone = shell(f"relight status {damaged.name}")
    assert (alone.returncode, alone.stderr.count("\n")) == (1, 1)


def test_a_trial_that_is_refused_or_finds_out_nothing_leaves_nothing(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "sbatch.err").write_text("sbatch: error: invalid account\n")
    (tmp_path / "sbatch.rc").write_text("1")
    refused = shell("exec relight doctor --try -- -A nobody")
    assert refused.returncode == 1
    assert refused.stderr == "relight: sbatch refused: sbatch: error: invalid account\n"
    assert "\t-A\tnobody\t" in (tmp_path / "calls").read_text()
    (tmp_path / "sbatch.rc").unlink()
    (tmp_path / "sbatch.out").write_text("7\n")
    (tmp_path / "scontrol.out").write_text("JobId=7 JobState=FAILED Reason=None\n")
    failed = shell("exec relight doctor --try")
    assert "job 7 has ended and found out nothing: no output" in failed.stderr
    assert "scancel\t7\n" in (tmp_path / "calls").read_text()
    assert not (tmp_path / "home").exists()
