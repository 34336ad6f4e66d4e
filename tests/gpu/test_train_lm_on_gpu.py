"""The training example on a real GPU: stopped and resumed, it ends as if nothing had happened."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_lm.py"
STEPS = 60

pytestmark = pytest.mark.gpu


def start(checkpoints: Path) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "RELIGHT_CHECKPOINT_DIR": str(checkpoints),
        "RELIGHT_CHECKPOINT_INTERVAL": "10 steps",
    }
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--step-time", "0.05"]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def digest(output: str) -> str:
    (found,) = re.findall(r"^digest (\w+)$", output, re.MULTILINE)
    return str(found)


def test_resume_is_bit_exact_with_the_random_state_of_the_gpu(tmp_path: Path) -> None:
    undisturbed = start(tmp_path / "a")
    expected = digest(undisturbed.communicate(timeout=300)[0])
    stopped = start(tmp_path / "b")
    assert stopped.stdout is not None
    for line in stopped.stdout:
        if line.startswith("step 25 "):
            stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(timeout=60) == 75
    stopped.stdout.close()
    resumed = start(tmp_path / "b")
    assert digest(resumed.communicate(timeout=300)[0]) == expected
