"""The ledger's folder: one file per record, no locks.

``<ledger>/<uid>/<node>.<digest>.json``: users write only in their own folder, and read all. A file
appears whole or not at all (temporary file, fsync, rename), so a crash leaves at most a temporary
file, which its owner's next write sweeps away. What is not a sound record is left out of every
answer, and counted.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.storage.durable import fsync_dir, make_dirs, publish

from .faults import DAY_S
from .record import Evidence, Record, RecordDamaged, Release, from_bytes, to_bytes
from .score import is_over

_log: Final = logging.getLogger(__name__)
MAX_RECORD_BYTES: Final = 1024**2  # of full lines in any script, escaped
_LEFTOVER_S: Final = 3600.0
_MARGIN_S: Final = 7 * DAY_S
_READABLE: Final = 0o644
_ENTERABLE: Final = 0o755


class LedgerUnwritable(RelightError):
    """The ledger takes no record from this user."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A shared folder of records."""

    root: Path

    def add(self, evidence: Evidence) -> None:
        """Keeps what was seen; the same run's earlier record of the same fault takes it in.

        Raises:
            LedgerUnwritable: the folder cannot be made or written.
        """
        earlier = _read(self._own / evidence.file_name, os.getuid())
        self._write(earlier.later(evidence) if isinstance(earlier, Evidence) else evidence)

    def release(self, release: Release) -> None:
        """Lets the node's evidence count no more, whoever saw it.

        Raises:
            LedgerUnwritable: the folder cannot be made or written.
        """
        self._write(release)

    def records(self) -> list[Record]:
        """Every sound record of every user; an absent ledger has none."""
        return [record for record in self._all() if record is not None]

    def damaged(self) -> int:
        """How many files are no sound records of their owner."""
        return sum(record is None for record in self._all())

    @property
    def _own(self) -> Path:
        return self.root / str(os.getuid())

    def _all(self) -> Iterator[Record | None]:
        for folder in _entries(self.root):
            if folder.name.isdecimal() and _belongs(folder, int(folder.name)):
                for path in _entries(folder):
                    if path.suffix == ".json" and not path.name.startswith("."):
                        yield _read(path, int(folder.name))

    def _write(self, record: Record) -> None:
        try:
            if not self._own.is_dir():
                make_dirs(self._own)
                self._own.chmod(_ENTERABLE)  # whatever the umask says: others read it
            # A name of its own, since others must not see the record before they may read it.
            ready = self._own / f".{record.file_name}.{secrets.token_hex(8)}"
            publish(ready, to_bytes(record))
            ready.chmod(_READABLE)
            told = ready.stat().st_mtime
            ready.replace(self._own / record.file_name)
            fsync_dir(self._own)
            self._sweep(min(time.time(), told))
        except OSError as error:
            raise LedgerUnwritable(
                f"the ledger {self.root} takes no record: {error.strerror}; make it writable, or "
                "name another one in RELIGHT_LEDGER"
            ) from error

    def _sweep(self, now: float) -> None:
        """Removes own records that can count no more, and what a crash has left.

        A node's clock may be ahead: ``now`` is not after the filesystem's time, nor is a record
        removed in its last days.
        """
        for path in _entries(self._own):
            if path.name.startswith("."):
                if _age_s(path, now) > _LEFTOVER_S:
                    path.unlink(missing_ok=True)
                continue
            record = _read(path, os.getuid())
            if record is not None and is_over(record, now - _MARGIN_S):
                path.unlink(missing_ok=True)


def default_ledger() -> Ledger:
    """The ledger that ``RELIGHT_LEDGER`` names, or the user's own."""
    named = os.environ.get("RELIGHT_LEDGER")
    if named:
        return Ledger(Path(named).absolute())
    home = os.environ.get("RELIGHT_HOME")
    return Ledger((Path(home) if home else Path.home() / ".relight").absolute() / "ledger")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # absent, or not ours to read: nothing is known from there


def _belongs(folder: Path, uid: int) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path, uid: int) -> Record | None:
    """The record in a file of this user; None when it is none."""
    try:
        # Anything may lie in a shared folder: no link is followed and no pipe is waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            return None
        return from_bytes(os.read(fd, MAX_RECORD_BYTES))
    except (RecordDamaged, OSError) as error:
        _log.debug("%s: %s", path, error)
        return None
    finally:
        os.close(fd)
