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
from .score import LEMON_WINDOW_S, is_over

_log: Final = logging.getLogger(__name__)
MAX_RECORD_BYTES: Final = 1024**2  # of full lines in any script, escaped
_LEFTOVER_S: Final = 3600.0
_MARGIN_S: Final = 7 * DAY_S


class LedgerUnreadable(RelightError):
    """The ledger is there, and tells this user nothing."""


class LedgerUnwritable(RelightError):
    """The ledger takes no record from this user."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A folder of records; what lies in a shared one all users can read."""

    root: Path
    shared: bool = False

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
        return [record for data in self.contents() if (record := _parsed(data)) is not None]

    def damaged(self) -> int:
        """How many files are no sound records of their owner."""
        return sum(_parsed(data) is None for data in self.contents())

    def contents(self) -> Iterator[bytes]:
        """What each file holds; nothing where it is not its folder's owner's, or unreadable.

        Raises:
            LedgerUnreadable: there is something that is no folder, or not ours to read.
        """
        for name in self._folders():
            try:
                yield from _contents_of(self.root / name, int(name))
            except PermissionError:
                yield b""  # it is counted
            except OSError:
                continue  # gone, or no folder

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if entry.name.isdecimal())
        except FileNotFoundError:
            return []  # nobody has kept anything yet
        except OSError as error:
            raise LedgerUnreadable(f"{self.root}: {error.strerror}") from error

    def _write(self, record: Record) -> None:
        try:
            with own_folder.own_folder(self.root, 0o755 if self.shared else 0o700) as folder:
                kept = _merged(_read(record.file_name, folder), record)
                mode = 0o644 if self.shared else 0o600
                written = own_folder.write(folder, record.file_name, to_bytes(kept), mode)
                with contextlib.suppress(OSError):  # the record is written whatever lies there
                    _sweep(folder, min(time.time(), written))
        except OSError as error:
            raise LedgerUnwritable(
                f"the ledger {self.root} takes no record: {error.strerror}; make it writable, or "
                "name another one in RELIGHT_LEDGER"
            ) from error


def _merged(earlier: Record | None, new: Record) -> Record:
    """What one file keeps of both."""
    if isinstance(earlier, Evidence) and isinstance(new, Evidence):
        return earlier.later(new)
    if isinstance(earlier, Release) and isinstance(new, Release):
        return earlier.later(new)
    return new


def _sweep(folder: int, now: float) -> None:
    """Removes own records that can count no more, and what a crash has left; nothing else.

    A node's clock may be ahead: ``now`` is not after the filesystem's time, nor is a record
    removed in its last days.
    """
    for name, written in own_folder.times(folder):
        if own_folder.IS_LEFTOVER.fullmatch(name):
            over = now - written > _LEFTOVER_S
        elif own_folder.IS_RECORD.fullmatch(name) and now - written > LEMON_WINDOW_S + _MARGIN_S:
            record = _read(name, folder)
            over = record is not None and is_over(record, now - _MARGIN_S)
        else:
            over = False
        if over:
            own_folder.remove(folder, name, written)


def _names(folder: Path | int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []  # absent, or not ours to read: nothing is known from there


def _contents_of(path: Path, uid: int) -> Iterator[bytes]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not own_folder.is_of(os.fstat(folder), uid):
            return
        for name in _names(folder):
            if name.endswith(".json") and not name.startswith("."):
                try:
                    yield own_folder.read(name, uid, MAX_RECORD_BYTES, folder)
                except OSError:
                    yield b""
    finally:
        os.close(folder)


def _read(name: str, folder: int) -> Record | None:
    """The own record of this name; None when there is none."""
    try:
        return _parsed(own_folder.read(name, os.getuid(), MAX_RECORD_BYTES, folder))
    except OSError:
        return None


def _parsed(data: bytes) -> Record | None:
    try:
        return from_bytes(data)
    except RecordDamaged as error:
        _log.debug("%s", error)
        return None
