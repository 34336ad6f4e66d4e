"""The tests that need a GPU, by pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rows import missing, tell

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("pytest", "pytest_timeout", "hypothesis", "psutil", "torch", "numpy", "h5py")


def main() -> None:
    if lacking := missing(*NEEDED):
        sys.exit(f"no tests without {', '.join(lacking)}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if re.search(r"passed|failed|skipped", line)]
    tell([("tests/gpu", f"exit {done.returncode}", line) for line in lines[-5:]])


if __name__ == "__main__":
    main()
