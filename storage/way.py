"""How a file system likes to be written and read: tried once, and remembered.

What was found lies in `~/.cache/relight/ways.json`, by file system. It is only a matter of speed:
where nothing can be found out or remembered, the usual way is taken.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

_BUDGET_S = 0.4
_CLEARLY_FASTER = 1.25  # one short trial on a busy machine proves no less


@dataclass(frozen=True, slots=True)
class Way:
    """Past the page cache or through it, and by how many threads at once."""

    direct: bool
    threads: int


USUAL = Way(direct=True, threads=8)
_OTHERS = (Way(direct=False, threads=4), Way(direct=True, threads=2), Way(direct=True, threads=16))
WORTH_A_TRIAL_BYTES = 256 << 20
TRIAL_BYTES = 32 << 20


def fastest(
    purpose: Literal["write", "read"], path: Path, attempt: Callable[[int, Way], None]
) -> Way:
    """The way for the file system of an existing path.

    `attempt` moves TRIAL_BYTES; it is told how many attempts there were before. Its OSErrors end
    the trial.
    """
    known = remembered(purpose, path)
    if known is not None:
        return known
    found = USUAL
    with suppress(OSError):
        found = _tried(attempt)
        _remember(purpose, path, found)
    return found


def _tried(attempt: Callable[[int, Way], None]) -> Way:
    """Every way takes its turn while there is time; the usual one stays unless one is better."""
    began = time.monotonic()
    best, best_s = USUAL, 0.0
    for number, way in enumerate((USUAL, *_OTHERS)):
        started = time.monotonic()
        attempt(number, way)
        ended = time.monotonic()
        needed_s = (ended - started) * (1.0 if way == USUAL else _CLEARLY_FASTER)
        if way == USUAL or needed_s < best_s:
            best, best_s = way, ended - started
        if ended - began > _BUDGET_S / 2:
            break
    return best


def remembered(purpose: Literal["write", "read"], path: Path) -> Way | None:
    """What was found out before about the file system of an existing path."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(_memory().read_text())[_file_system(path)][purpose]
        return Way(direct=bool(known["direct"]), threads=min(64, max(1, int(known["threads"]))))
    return None


def _remember(purpose: str, path: Path, way: Way) -> None:
    memory = _memory()
    try:
        known = dict(json.loads(memory.read_text()))
    except (OSError, ValueError, TypeError):
        known = {}
    name = _file_system(path)
    known[name] = {**known.get(name, {}), purpose: asdict(way)}
    memory.parent.mkdir(parents=True, exist_ok=True)
    temporary = memory.with_name(f".{memory.name}.{os.getpid()}")
    temporary.write_text(json.dumps(known, indent=1))
    temporary.replace(memory)


def _memory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base, "relight", "ways.json").expanduser()


def in_memory(path: Path) -> bool:
    """Whether a file needs neither disk nor network to be read, as far as that can be told."""
    with suppress(OSError, ValueError):
        return _file_system(path).partition(" ")[0] in ("tmpfs", "ramfs")
    return False


def _file_system(path: Path) -> str:
    """Type, source and mount point: the same on all nodes, where device numbers are not."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, number, _, place, *_ = fields.split()
        if number == wanted:
            kind, source, *_ = rest.split()
            return f"{kind} {source} {place}"
    return f"device {wanted}"
