"""A thousand nodes: what the head node has to do for their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIMIT_S = 30.0
LIMIT_BYTES = 100 * 1024**2
# A process keeps the peak of the one that it was forked from, so a small one stands between.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def test_a_thousand_nodes(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "health.thousand", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, *program],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["seconds"] < LIMIT_S
    assert figures["peak_bytes"] < LIMIT_BYTES
