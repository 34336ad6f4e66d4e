"""How shards are spread over Lustre's storage targets (Operations Manual, "lfs setstripe").

Only a matter of speed: where `lfs` is not there or refuses, the file system's own layout holds.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from . import blocks

_LIMIT_S = 10.0
_STRIPE_WORTH_BYTES = 1 << 30  # less than that is not written sooner by two targets than by one
_OST = re.compile(r"^\d+:\s+\S+\s+ACTIVE", re.MULTILINE)


def stripe(folder: Path, files: int, file_bytes: int) -> None:
    """Gives a folder the layout for so many files of that size, written at the same time.

    Files that are there keep theirs. A site's progressive layout is left alone.
    """
    targets = _targets(folder.parents[1])
    if targets:
        count = stripe_count(targets, files, file_bytes)
        _lfs("setstripe", "-c", str(count), "-S", str(blocks.BLOCK_BYTES), str(folder))


def stripe_count(targets: int, files: int, file_bytes: int) -> int:
    """Many files: one target each. Few large files: all targets, divided among them (pure)."""
    return max(1, min(targets // files, file_bytes // _STRIPE_WORTH_BYTES))


@cache
def _targets(directory: Path) -> int:
    """How many storage targets there are for us to choose from; 0 when the layout is not ours."""
    layout = _lfs("getstripe", "-d", str(directory))
    if layout is None or "lcm_" in layout:
        return 0
    return len(_OST.findall(_lfs("osts", str(directory)) or ""))


def _lfs(*arguments: str) -> str | None:
    """What it says; None when it is not there, fails (as on any other file system), or hangs."""
    try:
        done = subprocess.run(
            ["lfs", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
