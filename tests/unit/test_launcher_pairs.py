"""Steps of pairs: a few at once, and an end for those that do not end by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relight.launcher import pairs
from relight.launcher.pairs import PairSteps, end_all

# In the place of srun; its last words are the folder and the two nodes.
SRUN = """#!/bin/bash
set -- "${@: -3}"
mkdir "$1/one" || exit 1
echo 2.5 > "$1/$2+$3"
rmdir "$1/one"
"""


def test_pairs_are_measured_a_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(pairs, "AT_ONCE", 1)
    wanted = [("n1", "n2"), ("n3", "n4"), ("n5", "n6")]
    assert PairSteps("7", tmp_path).measure(wanted) == dict.fromkeys(wanted, 2.5)


def test_a_step_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "END_S", 0.2)
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    step = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert step.stdout is not None
    step.stdout.read(1)  # it is deaf by now
    end_all([step])
    assert step.poll() == -9
    step.stdout.close()


def test_a_step_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "END_S", 0.1)
    step = subprocess.Popen(["sleep", "60"])
    try:
        with monkeypatch.context() as unkillable:
            unkillable.setattr(subprocess.Popen, "terminate", lambda _self: None)
            unkillable.setattr(subprocess.Popen, "kill", lambda _self: None)
            began = time.monotonic()
            end_all([step])
            assert time.monotonic() - began < 30.0
    finally:
        step.kill()
        step.wait()
