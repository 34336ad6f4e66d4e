"""``relight sbatch`` as a process, against a stand-in for Slurm: what goes in, what comes out."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relight.launcher.stored_plan import read_plan
from relight.resilience.run_folder import RunFolder

FAKE_BIN = Path(__file__).parents[1] / "data" / "slurm" / "fake" / "bin"
RELIGHT = Path(sys.executable).with_name("relight")
SCRIPT = "#!/bin/sh\n#SBATCH -N2\necho hello\n"

Sbatch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "sbatch.out").write_text("Submitted batch job 42\n")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "job.sh").write_text(SCRIPT)
    return folder


@pytest.fixture
def sbatch(tmp_path: Path, fake: Path, work: Path) -> Sbatch:
    def call(*words: str, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        env = {**kept, "LANG": "C", "RELIGHT_HOME": str(tmp_path / "home"), "FAKE_SLURM": str(fake)}
        return subprocess.run(
            [RELIGHT, "sbatch", *words],
            env={**env, "PATH": f"{FAKE_BIN}:{env['PATH']}", **more},
            cwd=work,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[], list[Path]]:
    return lambda: list((tmp_path / "home" / "runs").glob("*"))


def sent(fake: Path, call: int = 0) -> list[str]:
    return (fake / "calls").read_text().splitlines()[call].split("\t")


def test_what_is_printed_and_stored(sbatch: Sbatch, runs: Callable[[], list[Path]]) -> None:
    done = sbatch("job.sh", "a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Submitted batch job 42\n", "")
    (root,) = runs()
    folder = RunFolder(root)
    assert folder.user_script.read_text() == SCRIPT
    assert stat.S_IMODE(folder.user_script.stat().st_mode) == 0o700
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    config = read_plan(root).config
    assert config.command == (str(folder.user_script), "a b")
    assert (root / "job_id").read_text() == "42\n"


def test_words_for_sbatch_come_as_they_were_given(
    sbatch: Sbatch, fake: Path, runs: Callable[[], list[Path]]
) -> None:
    sbatch("-N2", "--comment", "a b", "--parsable", "job.sh", "-t5")
    (root,) = runs()
    assert sent(fake) == [
        "sbatch", "--job-name=job.sh", "--open-mode=append", "--requeue",
        "-N2", "--comment", "a b", "--parsable", str(root / "job.sh"),
    ]  # fmt: skip


def test_the_environment_of_the_job_is_that_of_the_caller(sbatch: Sbatch, fake: Path) -> None:
    sbatch("job.sh", MY_OWN="x")
    env = (fake / "sbatch.env").read_text().splitlines()
    assert "MY_OWN=x" in env
    assert not any(line.startswith(("RELIGHT_RUN", "LC_CTYPE")) for line in env)


def test_exit_code_and_complaint_of_sbatch(
    sbatch: Sbatch, fake: Path, runs: Callable[[], list[Path]]
) -> None:
    (fake / "sbatch.out").unlink()
    (fake / "sbatch.err").write_text("sbatch: error: Invalid account\n")
    (fake / "sbatch.rc").write_text("7")
    done = sbatch("job.sh")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr == "sbatch: error: Invalid account\n"
    assert runs() == [], "nothing was submitted, and nothing stays"


def test_wrap_and_standard_input(
    sbatch: Sbatch, fake: Path, runs: Callable[[], list[Path]]
) -> None:
    sbatch("--wrap", "echo $HOME; exit")
    sbatch("-N1", text=SCRIPT)
    assert "--job-name=wrap" in sent(fake, 0)
    assert not any("--wrap" in word for word in sent(fake, 0))
    assert "--job-name=sbatch" in sent(fake, 2), "after a question about the partition"
    texts = sorted(RunFolder(root).user_script.read_text() for root in runs())
    assert SCRIPT in texts
    assert any(text.endswith("\n\necho $HOME; exit\n\n") for text in texts)


def test_a_job_whose_submission_got_no_answer_is_found(
    sbatch: Sbatch, fake: Path, runs: Callable[[], list[Path]]
) -> None:
    (fake / "sbatch.out").unlink()
    (fake / "sbatch.1.err").write_text("sbatch: error: Socket timed out on send/recv operation\n")
    (fake / "sbatch.1.rc").write_text("1")
    (fake / "squeue.out").write_text("41|RUNNING|None|/other/job.sh\n")
    (fake / "sbatch.2.out").write_text("Submitted batch job 43\n")
    done = sbatch("job.sh")
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 43\n")


def test_what_is_to_be_known_is_said_when_the_job_is_sent(sbatch: Sbatch, fake: Path) -> None:
    partition = (FAKE_BIN.parents[1] / "22.05" / "scontrol-show-partition.txt").read_text()
    (fake / "scontrol.out").write_text(partition)
    (fake / "scontrol.2.out").write_text("KillWait = 10 sec\n")
    lines = "#RELIGHT checkpoint: {signal: USR1, lead: 20min}\n"
    script = f"#!/bin/sh\n#SBATCH -N 99 -t 60\n{lines}echo hello\n"
    done = sbatch(text=script)
    assert (done.returncode, done.stdout) == (0, "Submitted batch job 42\n")
    lead, size, preempted = done.stderr.splitlines()
    assert "checkpoint.lead is 1200 s" in lead
    assert "needs 99 nodes, and partition low has 3 in all" in size
    assert "partition low gives a preempted job 15 s" in preempted
    assert preempted.endswith("afford to lose what it did since")
    assert sbatch("-Q", text=script).stderr == ""


@pytest.mark.parametrize("question", ["--help", "--version", "-V", "--usage"])
def test_questions_go_to_sbatch(sbatch: Sbatch, fake: Path, question: str) -> None:
    (fake / "sbatch.out").write_text("slurm-wlm 22.05.8\n")
    answer, _, ours = sbatch(question).stdout.partition("\n")
    assert answer == "slurm-wlm 22.05.8"
    assert sent(fake) == ["sbatch", question]
    told = ("--relight-dry-run", "#RELIGHT KEY: VALUE", "checkpoint.signal", "restart")
    assert all((word in ours) == (question == "--help") for word in told), ours


def test_dry_run_shows_all_and_sends_nothing(
    sbatch: Sbatch, fake: Path, work: Path, runs: Callable[[], list[Path]]
) -> None:
    lines = "#RELIGHT restart.failures: 2\n#RELIGHT checkpoint.signal: USR1\n"
    script = f"#!/bin/sh\n#SBATCH -N2\n{lines}echo hello\n"
    (work / "job.sh").write_text(script)
    done = sbatch("--relight-dry-run", "-N2", "job.sh")
    assert done.stdout.startswith("# sbatch --job-name=job.sh")
    assert "#SBATCH -N2" in done.stdout
    understood = "#   restart.mode: auto\n#   restart.failures: 2\n#   restart.no_progress: 3\n"
    assert f"{understood}#   checkpoint.signal: SIGUSR1\n\n" in done.stdout
    assert done.stdout.endswith(f"slurm_script:\n{script}")
    assert runs() == []
    assert not (fake / "calls").exists()


@pytest.mark.parametrize(
    ("words", "text", "part"),
    [
        (["missing.sh"], "", "Unable to open file missing.sh"),
        ([], "echo\n", "does not look like a batch script"),
        (["--wrap=a", "b"], "", "Script arguments not permitted"),
        (["--nodes"], "", "--nodes needs a value"),
        ([], "#!/bin/sh\n#RELIGHT restart.falures: 3\n", "did you mean 'restart.failures'?"),
    ],
)
def test_faults(sbatch: Sbatch, words: list[str], text: str, part: str) -> None:
    done = sbatch(*words, text=text)
    assert (done.returncode, done.stdout) == (1, "")
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_bytes_that_are_not_utf_8_stay_as_they_are(
    sbatch: Sbatch, work: Path, runs: Callable[[], list[Path]]
) -> None:
    content = b"#!/bin/sh\n# Gr\xfc\xdfe\n#SBATCH --comment=\xfc\necho \xff\n"
    (work / "job.sh").write_bytes(content)
    assert sbatch("job.sh").returncode == 0
    (root,) = runs()
    assert RunFolder(root).user_script.read_bytes() == content
    compile(RunFolder(root).script.read_bytes(), "job.sh", "exec")
