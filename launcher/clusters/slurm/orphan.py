"""An attempt that has lost its batch host: which warden acts for it, and what it arranged.

Clocks of two hosts may differ, so nothing here compares them: a file that does not change for a
while, by the clock of the one who watches it, is silent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import Restart

_VANISHED_S: Final = 300.0  # the longest that one try may take, when Slurm is slow to answer


@dataclass(frozen=True, slots=True)
class Mark:
    """Who acts for an attempt, and what came of it."""

    owner: str
    restart: Restart | None = None


def mark_path(folder: RunFolder, attempt: str) -> Path:
    return folder.attempt(attempt) / "orphaned"


def read_mark(path: Path) -> Mark | None:
    """None while nobody has taken the attempt over."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if (known := raw["restart"]) is None:
        return Mark(raw["owner"], None)
    restart = Restart(known["mode"], known["job_id"], tuple(known.get("released", ())))
    return Mark(raw["owner"], restart)


@dataclass(slots=True)
class Pulse:
    """For how long a file has not changed, as seen from here; from now on if it never did."""

    path: Path
    clock: Callable[[], float]
    _seen: tuple[int, int] | None = None
    _changed: float = 0.0

    def __post_init__(self) -> None:
        self._changed = self.clock()

    def silence_s(self) -> float:
        now, seen = self.clock(), self._look()
        if seen != self._seen:
            self._seen, self._changed = seen, now
        return now - self._changed

    def restart(self) -> None:
        """Somebody else has said that all is well."""
        self._changed = self.clock()

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


@dataclass(slots=True)
class Claim:
    """One warden's claim to act: the first has it, another only after the first has vanished."""

    path: Path
    owner: str
    clock: Callable[[], float]
    _pulse: Pulse | None = None

    def take(self) -> bool:
        """Whether this warden is to act now; asked again before each try."""
        mine = Mark(self.owner)
        if self._is_first(mine):
            return True
        mark = read_mark(self.path)
        self._pulse = self._pulse or Pulse(self.path, self.clock)
        silence_s = self._pulse.silence_s()
        if mark is not None and mark.owner != self.owner and silence_s < _VANISHED_S:
            return False
        self._draft(mine).replace(self.path)  # changes the file: a sign of life
        return True

    def arranged(self, restart: Restart) -> None:
        """Leaves word for a supervisor that was only taken for dead."""
        self._draft(Mark(self.owner, restart)).replace(self.path)

    def _is_first(self, mark: Mark) -> bool:
        draft = self._draft(mark)
        try:
            os.link(draft, self.path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def _draft(self, mark: Mark) -> Path:
        draft = self.path.with_name(f".orphaned.{self.owner}")
        draft.write_text(json.dumps(asdict(mark)))
        return draft
