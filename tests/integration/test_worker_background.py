"""Whole programs that save in the background, and end in every way while a save is under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from relight.storage.choose import newest_valid

# From step 2 on a save is under way: its writer is held until the program, or its fault, lets go.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import numpy as np, psutil
import relight
fault = sys.argv[1]
run = relight.join(interval="1 step")
seen, weight = [], np.zeros(1 << 20)
run.protect(seen=seen, weight=weight)

def writer():
    (process,) = psutil.Process().children()
    return process

for step in run.steps(6):
    print("step", step, flush=True)
    if step == 1 and fault:
        while not Path(os.environ["RELIGHT_CHECKPOINT_DIR"], f"{1:012d}", "MANIFEST.json").exists():
            time.sleep(0.01)
        writer().suspend()
    if step == 2 and fault == "SIGKILL":
        print("writer", writer().pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 2 and fault == "SIGTERM":
        os.killpg(0, signal.SIGTERM)
        os.killpg(0, signal.SIGTERM)
        writer().resume()
    if step == 2 and fault == "raise":
        writer().resume()
        raise ValueError("a fault of the program")
    if step == 2 and fault == "break":
        writer().resume()
        break
    if step == 2 and fault == "fork":
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
        writer().resume()
    if step == 2 and fault == "kill writer":
        writer().kill()
    seen.append(step)
    weight += 1
print("end", seen, weight.min(), weight.max())
"""
END = "end [0, 1, 2, 3, 4, 5] 6.0 6.0"


def run_program(directory: Path, fault: str = "") -> tuple[int, str, str]:
    """Exit code, what it printed, what it complained of."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, fault],
        env=os.environ | {"RELIGHT_CHECKPOINT_DIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )
    return done.returncode, done.stdout.strip(), done.stderr


def newest(directory: Path) -> int:
    manifest = newest_valid(directory)
    assert manifest is not None
    return manifest.step


def test_the_last_save_is_there_at_the_end(tmp_path: Path) -> None:
    code, output, complaints = run_program(tmp_path)
    assert (code, output.splitlines()[-1], complaints) == (0, END, "")
    assert newest(tmp_path) == 6


def test_a_killed_program_leaves_no_writer_and_no_half_checkpoint(tmp_path: Path) -> None:
    code, output, _ = run_program(tmp_path, "SIGKILL")
    assert code == -signal.SIGKILL
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(output.split()[-1])).wait(timeout=60)
    assert newest(tmp_path) == 1
    assert list(Path("/dev/shm").glob("*relight*")) == []
    code, output, _ = run_program(tmp_path)
    assert (code, output.splitlines()[0], output.splitlines()[-1]) == (0, "step 1", END)


def test_a_signal_during_a_save_stops_the_program_when_all_is_saved(tmp_path: Path) -> None:
    code, output, _ = run_program(tmp_path, "SIGTERM")
    assert (code, output.splitlines()[-1]) == (75, "step 2")
    assert newest(tmp_path) == 3
    assert run_program(tmp_path)[1].splitlines()[-1] == END


@pytest.mark.parametrize(("fault", "code"), [("raise", 1), ("break", 0)])
def test_a_save_under_way_is_not_lost_when_the_loop_is_left(
    tmp_path: Path, fault: str, code: int
) -> None:
    assert run_program(tmp_path, fault)[0] == code
    assert newest(tmp_path) == 2


def test_training_goes_on_without_its_writer(tmp_path: Path) -> None:
    code, output, complaints = run_program(tmp_path, "kill writer")
    assert (code, output.splitlines()[-1]) == (0, END)
    assert "the checkpoint of step 2 failed" in complaints
    assert newest(tmp_path) == 6


def test_a_forked_child_that_leaves_the_loop_takes_no_writer_with_it(tmp_path: Path) -> None:
    code, output, complaints = run_program(tmp_path, "fork")
    assert (code, output.splitlines()[-1], complaints) == (0, END, "")
    assert newest(tmp_path) == 6
