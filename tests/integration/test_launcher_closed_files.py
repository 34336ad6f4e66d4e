"""``relight run`` of somebody who has closed a standard file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_run_without_standard_error_runs(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: ['true']\nhealth: {preflight: 'off'}\n")
    relight = Path(sys.executable).with_name("relight")
    done = subprocess.run(
        ["sh", "-c", '"$0" run job.yaml 2>&-', relight],
        cwd=tmp_path,
        env={**os.environ, "RELIGHT_HOME": str(tmp_path / "home")},
        timeout=60,
        check=False,
    )
    (verdict,) = (tmp_path / "home" / "runs").glob("*/verdict.json")
    assert (done.returncode, json.loads(verdict.read_text())["state"]) == (0, "COMPLETED")
