"""What lies beside a local run: it is not ours, and neither hurts the run nor is hurt by it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
from stage.local import PATIENCE_S, RELIGHT


def test_what_lies_beside_a_run_is_left_alone(tmp_path: Path) -> None:
    """Files called like Python's own modules, and processes of the shell that became the front."""
    for name in ("queue", "random", "token", "types"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not Python's own')\n")
    spec = tmp_path / "job.yaml"
    spec.write_text("command: [echo, hello]\n")
    command = f"sleep 600 > /dev/null & echo $!; exec {RELIGHT} run --json {spec}"
    with subprocess.Popen(
        ["bash", "-c", command],
        env={**os.environ, "RELIGHT_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        assert shell.stdout is not None
        beside = psutil.Process(int(shell.stdout.readline()))
        said = shell.stdout.read() if shell.wait(PATIENCE_S) == 0 else ""
        lives = beside.is_running()
        beside.kill()
    assert '"COMPLETED"' in said
    assert lives
