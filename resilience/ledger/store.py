"""The ledger's folder: one file per record, no locks.

``<ledger>/<uid>/<node>.<digest>.json``: users write only in their own folder, and read all. A file
appears whole or not at all (temporary file, fsync, rename), so a crash leaves at most a temporary
file, which its owner's next write sweeps away. What is not a sound record is left out of every
answer, and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import RelightError

from . import own_folder
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
        self._write(evidence)

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

    def _all(self) -> Iterator[Record | None]:
        for folder in _entries(self.root):
            if folder.name.isdecimal() and _belongs(folder, int(folder.name)):
                for path in _entries(folder):
                    if path.suffix == ".json" and not path.name.startswith("."):
                        yield _read(path, int(folder.name))

    def _write(self, record: Record) -> None:
        try:
            with own_folder.own_folder(self.root, _ENTERABLE) as folder:
                earlier = _read(record.file_name, os.getuid(), folder)
                if isinstance(record, Evidence) and isinstance(earlier, Evidence):
                    record = earlier.later(record)
                name, data = record.file_name, to_bytes(record)
                written = own_folder.write(folder, name, data, _READABLE)
                _sweep(folder, min(time.time(), written))
        except OSError as error:
            raise LedgerUnwritable(
                f"the ledger {self.root} takes no record: {error.strerror}; make it writable, or "
                "name another one in RELIGHT_LEDGER"
            ) from error


def _sweep(folder: int, now: float) -> None:
    """Removes own records that can count no more, and what a crash has left; nothing else.

    A node's clock may be ahead: ``now`` is not after the filesystem's time, nor is a record
    removed in its last days.
    """
    for name, age_s in own_folder.ages_s(folder, now):
        if own_folder.IS_LEFTOVER.fullmatch(name):
            over = age_s > _LEFTOVER_S
        elif own_folder.IS_RECORD.fullmatch(name):
            record = _read(name, os.getuid(), folder)
            over = record is not None and is_over(record, now - _MARGIN_S)
        else:
            over = False
        if over:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


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
        return own_folder.is_of(folder.lstat(), uid)
    except OSError:
        return False


def _read(path: Path | str, uid: int, folder: int | None = None) -> Record | None:
    """The record in a file of this user; None when it is none."""
    try:
        return from_bytes(own_folder.read(path, uid, MAX_RECORD_BYTES, folder))
    except (RecordDamaged, OSError) as error:
        _log.debug("%s: %s", path, error)
        return None
