"""scripts/test says by its exit status whether the tests passed, and stops what it started."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def stub(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the real scripts/test and stand-ins for all that it calls."""
    stub(tmp_path / "scripts/setup", "true")
    stub(tmp_path / "scripts/minicluster", 'shift 2; exec "$@"')
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts/test")
    return tmp_path


def exit_status(checkout: Path, *arguments: str) -> int:
    done = subprocess.run([checkout / "scripts/test", *arguments], capture_output=True, timeout=60)
    return done.returncode


@pytest.mark.parametrize(
    ("others", "cluster", "expected"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 0, 2)]
)
def test_one_failure_anywhere_fails_the_whole(
    checkout: Path, others: int, cluster: int, expected: int
) -> None:
    stub(
        checkout / ".venv/bin/python",
        f"[[ $* == *--ignore=tests/cluster* ]] && exit {others}\nexit {cluster}",
    )
    assert exit_status(checkout) == expected


@pytest.mark.parametrize("status", [0, 1, 5])
def test_with_arguments_the_status_is_that_of_pytest(checkout: Path, status: int) -> None:
    stub(checkout / ".venv/bin/python", f"exit {status}")
    assert exit_status(checkout, "-k", "health") == status
