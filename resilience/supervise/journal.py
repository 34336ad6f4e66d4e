"""The append-only record of one attempt: what happened, what was decided and why.

One writer per file (``journal/<attempt>.jsonl``), one JSON object per line::

    {"place": 2, "time": 1790000000.123, "kind": "event", "name": "RankExited", "data": {...}}

``place`` is that of the attempt in the run, from 1: the clocks of its hosts may differ. ``kind`` is
``event`` or ``action`` (journaled before it is executed, its ``reason`` in the data).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relight.errors import RelightError

Kind = Literal["event", "action"]


class JournalTaken(RelightError):
    """Another supervisor already writes the journal of this attempt."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal; ``time`` is in Unix seconds."""

    time: float
    kind: Kind
    name: str
    data: Mapping[str, object]
    attempt: str = ""  # from the file's name, not stored in the line


@dataclass(frozen=True, slots=True)
class Entry:
    """A line to be written; ``time`` is in Unix seconds."""

    time: float
    kind: Kind
    name: str
    data: Mapping[str, object]


class JournalWriter:
    """Appends entries, durable before :meth:`write` returns.

    What the disk refuses is kept, and written with what comes next. ``go_on`` continues the journal
    of a supervisor that is known to have ended.

    Raises:
        JournalTaken: the file exists: two supervisors of one attempt must not run.
    """

    def __init__(self, path: Path, *, go_on: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if go_on:
            _cut_torn_line(path)
        others = [other for other in journals(path.parent) if other != path]
        self._place = (_place_in_file(path) if go_on else None) or 1 + len(others)
        new = 0 if go_on else os.O_EXCL
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | new, 0o600)
        except FileExistsError as error:
            raise JournalTaken(
                f"{path} exists: a supervisor of this attempt is, or was, at work; this one stops"
            ) from error
        self._path = path
        self._size_bytes = os.fstat(self._fd).st_size
        self._unwritten = b""
        self._is_torn = False  # behind the last whole record there may be part of one

    @property
    def unwritten(self) -> bool:
        """Whether entries wait for the disk."""
        return self._unwritten != b""

    def write(self, entries: Sequence[Entry]) -> OSError | None:
        """None once all entries are durable, these and earlier ones; else why they are not."""
        self._unwritten += b"".join(_line(entry, self._place) for entry in entries)
        if not self._unwritten:
            return None
        try:
            self._mend()
            self._is_torn = True
            self._append(self._unwritten)
        except OSError as error:
            with contextlib.suppress(OSError):  # else before the next try
                self._mend()
            return error
        self._size_bytes += len(self._unwritten)
        self._unwritten, self._is_torn = b"", False
        return None

    def _append(self, content: bytes) -> None:
        while content:
            taken = os.write(self._fd, content)
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            content = content[taken:]
        os.fdatasync(self._fd)

    def _mend(self) -> None:
        """Back to the last whole record: a torn line would spoil the next one."""
        if not self._is_torn:
            return
        try:
            os.ftruncate(self._fd, self._size_bytes)
        except OSError:  # a file system that was away knows no older descriptor
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            self._fd, stale = fd, self._fd
            with contextlib.suppress(OSError):
                os.close(stale)
            os.ftruncate(self._fd, self._size_bytes)
        self._is_torn = False

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what was written is durable
            os.close(self._fd)


def _line(entry: Entry, place: int) -> bytes:
    content = {
        "place": place,
        "time": entry.time,
        "kind": entry.kind,
        "name": entry.name,
        "data": entry.data,
    }
    return json.dumps(content, default=str).encode() + b"\n"


def _cut_torn_line(path: Path) -> None:
    """What follows the last whole line was never acted upon, and would spoil what comes next."""
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def read_journal(path: Path) -> list[Record]:
    """All whole records of one file."""
    return records_of(path.read_bytes(), path.stem)


def records_of(lines: bytes, attempt: str) -> list[Record]:
    """What was never acted upon, a line torn by a crash or zeros after one, is none."""
    records = []
    for line in lines.split(b"\n"):
        try:
            raw = json.loads(line)
            records.append(Record(raw["time"], raw["kind"], raw["name"], raw["data"], attempt))
        except (ValueError, KeyError, TypeError):
            continue
    return records


def read_journals(folder: Path) -> list[Record]:
    """The records of all attempts of a run, oldest first; none where there is no folder.

    Raises:
        OSError: they cannot be read: a run that has done nothing would look like that.
    """
    return [record for path in journals(folder) for record in read_journal(path)]


def journals(folder: Path) -> list[Path]:
    """The journals of a run, that of its first attempt first; an empty one has just begun.

    Raises:
        OSError: the folder is there and cannot be read, which ``glob`` keeps to itself.
    """
    try:
        found = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    except FileNotFoundError:
        return []
    return sorted(found, key=_order)


def _order(path: Path) -> tuple[float, float]:
    """By place; the time tells where there is none, in a journal of an older relight."""
    first = _first_line(path)
    time_s = first.get("time")
    if not isinstance(time_s, int | float):
        return math.inf, path.stat().st_mtime
    return _place(first) or 0, time_s


def _place_in_file(path: Path) -> int | None:
    return _place(_first_line(path)) if path.exists() else None


def _place(line: Mapping[str, object]) -> int | None:
    place = line.get("place")
    return place if isinstance(place, int) else None


def _first_line(path: Path) -> Mapping[str, object]:
    with path.open("rb") as file:
        line = file.readline()
    try:
        content = json.loads(line)
    except ValueError:  # torn by a crash
        return {}
    return content if isinstance(content, dict) else {}


def shown(data: Mapping[str, object]) -> str:
    """An entry for people: the fields that hold something, without the ranks' own words."""
    return ", ".join(
        f"{key}={value}"
        for key, value in data.items()
        if value not in ((), None, {}, "") and key != "tail"
    )
