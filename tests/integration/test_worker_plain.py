"""A program on its own: no agent, a world of one. Saves while steps wait: each is there at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relight.storage.choose import candidates, newest_valid

# The program stops itself or dies at a chosen step, so that no test has to wait for the moment.
PROGRAM = """
import os, random, signal, sys, threading
import relight
run = relight.join(interval="2 steps")
seen = []
run.protect(seen=seen, total=0.0)
fault, fault_step = sys.argv[1], int(sys.argv[2])
try:
    for step in run.steps(8):
        if step == fault_step and fault in ("SIGTERM", "SIGUSR1", "SIGKILL"):
            os.kill(os.getpid(), getattr(signal, fault))
            os.kill(os.getpid(), getattr(signal, fault))
        if step == fault_step and fault == "raise":
            raise ValueError("a fault of the program")
        if step == fault_step and fault == "break":
            break
        seen.append(step)
        run.values["total"] += random.random()
finally:
    print("finally", flush=True)
print("end", seen, run.values["total"].hex())
"""


def run_program(tmp_path: Path, fault: str = "none", step: int = -1) -> tuple[int, str, str]:
    """Exit code, what it printed, what it complained of."""
    environment = {
        "RELIGHT_CHECKPOINT_DIR": str(tmp_path / "ck"),
        "RELIGHT_CHECKPOINT_STAGING": "0",
        "PYTHONHASHSEED": "0",
    }
    program = PROGRAM.replace("seen = []", "seen = []; random.seed(1)")
    done = subprocess.run(
        [sys.executable, "-c", program, fault, str(step)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    code, output, _ = run_program(tmp_path_factory.mktemp("undisturbed"))
    assert code == 0
    return output


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_saves_and_the_next_start_continues(
    tmp_path: Path, undisturbed: str, name: str
) -> None:
    assert run_program(tmp_path, name, 3)[:2] == (75, "finally")
    manifest = newest_valid(tmp_path / "ck")
    assert manifest is not None
    assert manifest.step == 4
    assert run_program(tmp_path)[:2] == (0, undisturbed)


def test_sigkill_loses_only_what_was_not_saved(tmp_path: Path, undisturbed: str) -> None:
    assert run_program(tmp_path, "SIGKILL", 5)[0] == -signal.SIGKILL
    assert run_program(tmp_path)[:2] == (0, undisturbed)


@pytest.mark.parametrize(("fault", "code"), [("raise", 1), ("break", 0)])
def test_leaving_the_loop_saves_nothing(tmp_path: Path, fault: str, code: int) -> None:
    assert run_program(tmp_path, fault, 3)[0] == code
    manifest = newest_valid(tmp_path / "ck")
    assert manifest is not None
    assert manifest.step == 2


def test_a_complete_run_does_nothing_more(tmp_path: Path, undisturbed: str) -> None:
    assert run_program(tmp_path)[:2] == (0, undisturbed)
    assert run_program(tmp_path, "raise", 7)[:2] == (0, undisturbed)


def test_falls_back_to_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, undisturbed: str
) -> None:
    run_program(tmp_path, "SIGKILL", 7)
    manifest = newest_valid(tmp_path / "ck")
    assert manifest is not None
    assert manifest.step == 6
    shard = tmp_path / "ck" / f"{6:012d}" / manifest.receipts[0].file
    shard.write_bytes(bytes(shard.stat().st_size))
    code, output, complaints = run_program(tmp_path)
    assert (code, output) == (0, undisturbed)
    assert "damaged" in complaints


def test_a_failed_save_does_not_end_the_program(tmp_path: Path, undisturbed: str) -> None:
    run_program(tmp_path, "SIGKILL", 3)
    (tmp_path / "ck" / f"{6:012d}").write_text("in the way")
    code, output, complaints = run_program(tmp_path)
    assert (code, output) == (0, undisturbed)
    assert "the checkpoint of step 6 failed" in complaints


def run_text(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_directory_one_line_says_so() -> None:
    done = run_text("import relight; print(list(relight.join().steps(3)))")
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2]\n")
    assert done.stderr.count("\n") == 1
    assert "RELIGHT_CHECKPOINT_DIR" in done.stderr


def test_forked_children_die_of_a_signal(tmp_path: Path) -> None:
    done = run_text(
        "import os, signal, relight\n"
        "run = relight.join()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.pause()\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.WTERMSIG(os.waitpid(child, 0)[1]))\n",
        RELIGHT_CHECKPOINT_DIR=str(tmp_path),
    )
    assert done.stdout == f"{int(signal.SIGTERM)}\n"


def test_a_forked_child_may_end_among_the_steps(tmp_path: Path) -> None:
    done = run_text(
        "import os, sys, relight\n"
        "run = relight.join(interval='1 step')\n"
        "run.protect(seen=[])\n"
        "for step in run.steps(4):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        sys.exit(5)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=' ')\n",
        RELIGHT_CHECKPOINT_DIR=str(tmp_path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 5 5 5 ", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "import threading\nt = threading.Thread(target=relight.join)\nt.start(); t.join()",
            "main thread",
        ),
        ("run = relight.join(); next(run.steps(3)); run.protect(late=[])", "too late"),
        ("run = relight.join(); list(run.steps(1)); list(run.steps(1))", "once"),
        ("list(relight.join().steps(-1))", "0 or more"),
        ("relight.join(interval='often')", "20 steps"),
        (
            "run = relight.join(interval='1 step')\n"
            "run.protect(odd={'f': print})\n"
            "list(run.steps(2))",
            "objects/odd/f",
        ),
    ],
)
def test_misuse_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    done = run_text(f"import relight\n{text}", RELIGHT_CHECKPOINT_DIR=str(tmp_path))
    assert complaint in done.stderr


def test_join_brings_no_heavy_package() -> None:
    done = run_text(
        "import sys, relight; relight.join()\n"
        "print([name for name in ('numpy', 'h5py', 'torch', 'mpi4py') if name in sys.modules])"
    )
    assert done.stdout == "[]\n"


def test_a_checkpoint_knows_what_was_logged_also_before_a_restart(tmp_path: Path) -> None:
    program = """
import sys
import relight
run = relight.join(interval="2 steps")
for step in run.steps(int(sys.argv[1])):
    if step < 2:
        run.log(loss=10 - step, phase="warm", norm=float("nan"), rate=0.5)
    if step > 3:
        run.log(loss=0.25)
"""
    environment = os.environ | {"RELIGHT_CHECKPOINT_DIR": str(tmp_path)}
    for total in (4, 6):
        command = [sys.executable, "-c", program, str(total)]
        subprocess.run(command, env=environment, timeout=60, check=True)
    found = {one.step: one.manifest for one in candidates(tmp_path)}
    metrics = {step: manifest.metrics for step, manifest in found.items() if manifest}
    assert metrics == {
        2: {"loss": 9.0, "rate": 0.5},
        4: {"loss": 9.0, "rate": 0.5},
        6: {"loss": 0.25, "rate": 0.5},
    }
