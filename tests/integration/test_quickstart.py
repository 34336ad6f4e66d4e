"""The quickstart without Slurm: it proves what it promises, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

HOME = Path(__file__).parents[2]
PATIENCE_S = 300.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the quickstart keeps its temporary files; nothing may stay there, or run from there."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert [process for process in psutil.process_iter() if _belongs(process, tmp_path)] == []


def _belongs(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.environ().get("RELIGHT_HOME", "").startswith(str(folder))
    except psutil.Error:
        return False


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "quickstart", *arguments],
        env={**os.environ, "PYTHONPATH": str(HOME / "examples"), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_it_proves_that_faults_change_nothing(folder: Path) -> None:
    with start(folder, "--steps", "30") as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "equal, bit for bit" in said
    assert "rank 1 on node1 was killed (SIGKILL)" in said
    assert "told to stop (preempted)" in said
    assert "COMPLETED" in said


def test_an_interrupt_leaves_nothing(folder: Path) -> None:
    with start(folder) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        while not list(folder.glob("*/home/runs/*/attempts/*/logs/1/0.log")):  # ranks run
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert said.splitlines()[-1].endswith("everything is ended and removed")


def test_too_few_steps_are_refused(folder: Path) -> None:
    with start(folder, "--steps", "3") as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "at least 30 steps" in said
