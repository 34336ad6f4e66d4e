"""The benchmark of checkpoints runs, and all contenders restore what they saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "checkpoint.py"


def test_it_prints_a_table_for_each_work(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--folder", str(tmp_path)]
    command += ["--quick", "--rounds", "1", "--work", "big", "--work", "transformer"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line[:1] == "|"]
    assert rows.count("relight") == rows.count("torch.save") == rows.count("raw") == 2
    assert list(tmp_path.iterdir()) == []
