"""The examples, interrupted, end with the digest of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from relight.storage.choose import newest_valid

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FAULTY = Path(__file__).resolve().parents[1] / "stage" / "faulty.py"
TRAIN = [str(EXAMPLES / "train_lm.py"), "--steps=8", "--batch=2", "--width=16", "--context=16"]
HEAT = [str(EXAMPLES / "heat.py"), "--steps=60", "--size=32"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def mpirun(ranks: int) -> list[str]:
    options = ["--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    return ["mpirun", *options, sys.executable]


def start(command: Sequence[str], directory: Path, interval: str) -> subprocess.Popen[str]:
    environment = {"RELIGHT_CHECKPOINT_DIR": str(directory), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        env=os.environ | environment | {"RELIGHT_CHECKPOINT_INTERVAL": interval},
        stdout=subprocess.PIPE,
        text=True,
    )


def signal_all(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signals a process, if it still runs, and all below it.

    torchrun's workers lead sessions of their own: a signal to the group would miss them.
    """
    if process.poll() is not None:
        return
    parent = psutil.Process(process.pid)
    for member in [parent, *parent.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)


def finish(command: Sequence[str], directory: Path, interval: str) -> list[str]:
    """The lines of a run that is left alone."""
    process = start(command, directory, interval)
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        signal_all(process, signal.SIGKILL)
    assert process.returncode == 0
    return output.splitlines()


def interrupt(
    launcher: Sequence[str],
    program: Sequence[str],
    directory: Path,
    interval: str,
    step: int,
    number: signal.Signals,
) -> int:
    """Signals all processes of a run whose rank 0 waits before this step, and lets that go on.

    A checkpoint of an earlier step may still be on its way to the disk: it is waited for.
    """
    waits = directory.with_suffix(".waits")
    fault = [str(FAULTY), "wait", "0", str(step), str(waits)]
    process = start([*launcher, *fault, *program], directory, interval)
    try:
        while not waits.exists() or newest_valid(directory) is None:
            assert process.poll() is None, "it ended without a checkpoint"
            time.sleep(0.02)
        signal_all(process, number)
        waits.with_suffix(".go").touch()
        process.communicate(timeout=300)
    finally:
        signal_all(process, signal.SIGKILL)
    return process.returncode


def test_train_lm_continues_after_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, *TRAIN]
    expected = finish(command, tmp_path / "undisturbed", "3 steps")
    disturbed = tmp_path / "disturbed"
    code = interrupt([sys.executable], TRAIN, disturbed, "3 steps", 5, signal.SIGTERM)
    assert code == 75
    saved = newest_step(disturbed)
    rest = finish(command, disturbed, "3 steps")
    assert rest == expected[-len(rest) :]  # every loss, and the digest
    assert first_step(rest) >= saved


def test_two_ranks_of_train_lm_continue_after_sigkill(tmp_path: Path) -> None:
    command = [*TORCHRUN, *TRAIN]
    expected = finish(command, tmp_path / "undisturbed", "3 steps")
    disturbed = tmp_path / "disturbed"
    interrupt(TORCHRUN, TRAIN, disturbed, "3 steps", 5, signal.SIGKILL)
    saved = newest_step(disturbed)
    rest = finish(command, disturbed, "3 steps")
    assert rest == expected[-len(rest) :]
    assert first_step(rest) >= saved


def newest_step(directory: Path) -> int:
    """The step of the last manifest; the next start may commit a later one that lacks only that."""
    newest = newest_valid(directory)
    assert newest is not None
    return newest.step


def first_step(lines: Sequence[str]) -> int:
    return int(lines[0].split()[1])


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_heat_killed_on_four_ranks_goes_on_with_three_and_with_five(tmp_path: Path) -> None:
    expected = finish([sys.executable, *HEAT], tmp_path / "undisturbed", "20 steps")
    killed = tmp_path / "killed"
    interrupt(mpirun(4), HEAT, killed, "20 steps", 31, signal.SIGKILL)
    saved = newest_step(killed)
    for ranks in (4, 3, 5):
        directory = tmp_path / str(ranks)
        shutil.copytree(killed, directory)
        rest = finish([*mpirun(ranks), *HEAT], directory, "20 steps")
        assert first_step(rest) >= saved
        assert rest[-1] == expected[-1]
        newest = newest_valid(directory)
        assert newest is not None
        assert newest.world_size == ranks
