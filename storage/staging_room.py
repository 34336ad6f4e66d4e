"""How much memory this process may still take without the kernel having to kill something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_KIB = 1024


class _Names(NamedTuple):
    """How a version of control groups calls its files."""

    limit: str
    usage: str
    cache: re.Pattern[str]


_V1 = _Names(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    re.compile(r"^total_(?:in)?active_file (\d+)$", re.MULTILINE),
)
_V2 = _Names(
    "memory.max",
    "memory.current",
    re.compile(r"^(?:in)?active_file (\d+)$", re.MULTILINE),
)
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)


def room_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The least of what the machine and each control group around this process have left.

    Cached files count as free. Source: proc_meminfo(5), cgroups(7).
    """
    available = re.search(
        r"^MemAvailable: +(\d+) kB$", (proc / "meminfo").read_text(), re.MULTILINE
    )
    machine_bytes = int(available[1]) * _KIB if available else 0
    return min([machine_bytes, *_left_in_groups(proc, groups)])


def _left_in_groups(proc: Path, groups: Path) -> Iterator[int]:
    membership = proc / "self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = groups, _V2
        elif "memory" in controllers.split(","):
            top, names = groups / "memory", _V1
        else:
            continue
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(top):
                yield from _left_in(group, names)


def _left_in(group: Path, names: _Names) -> Iterator[int]:
    """Nothing for a group without a limit, or one that cannot be seen from a container."""
    try:
        limit = (group / names.limit).read_text().strip()
        usage = int((group / names.usage).read_text())
        cache = sum(map(int, names.cache.findall((group / "memory.stat").read_text())))
    except OSError:
        return
    if limit != "max":
        yield int(limit) - (usage - cache)
