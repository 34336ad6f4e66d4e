"""The command ``lfs``, by which a Lustre client is asked."""

from __future__ import annotations

import subprocess


def run_lfs(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What it said, however it ended. Raises OSError where there is no such command."""
    return subprocess.run(
        ["lfs", *arguments], capture_output=True, text=True, errors="replace", check=False
    )


def ask_lfs(*arguments: str) -> str:
    """What it printed. Raises OSError where it fails, or is not there."""
    done = run_lfs(*arguments)
    if done.returncode != 0:
        raise OSError(f"lfs {arguments[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
