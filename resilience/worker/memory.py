"""Whether the kernel has killed something of this process's control group for lack of memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_COUNT: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills(membership: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> int:
    """How many processes the group has lost so far; 0 where nobody counts.

    Source: cgroups(7); ``memory.events`` of cgroup-v2.rst, ``memory.oom_control`` of v1.
    """
    try:
        groups = membership.read_text().splitlines()
    except OSError:
        return 0
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers == "":
            file = root / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = root / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        try:
            found = _COUNT.search(file.read_text())
        except OSError:
            continue
        if found is not None:
            return int(found[1])
    return 0
