"""Follows a run while it happens, by its journal and its progress file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import Record, journals, read_journals, records_of
from relight.resilience.supervise.standing import Verdict, write_whole

from .rank_logs import last_lines, script_output
from .story import brief
from .transfers import TransferLines, json_lines, over_bar, plain_lines, transfer_of
from .waiting import waits_within

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.status import Status


def nothing_done_since(folder: RunFolder) -> int | None:
    """The step that the last ranks of a run began with, where they did none."""
    starts = [one for one in read_journals(folder.journals) if one.name == "RanksStarted"]
    restored = starts[-1].data.get("restored_step") if starts else None
    reached = (read_progress(folder) or {}).get("step")
    return restored if isinstance(restored, int) and reached == restored else None


def read_progress(folder: RunFolder) -> Mapping[str, object] | None:
    """Where the run stands; None before its first attempt."""
    try:
        content = json.loads(folder.progress.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def catch_up(folder: RunFolder) -> None:
    """Tells the progress file of a supervisor that was killed what its journal knows already."""
    progress = read_progress(folder)
    if progress is None:
        return
    wrote = progress.get("time")
    newer = [
        record.data["step"]
        for record in read_journals(folder.journals)
        if record.name == "CheckpointCommitted"
        and isinstance(wrote, float)
        and record.time >= wrote
    ]
    if newer:
        write_whole(folder.progress, {**progress, "last_checkpoint": newer[-1]}, durable=False)


def untold_end(folder: RunFolder, verdict: Verdict | None) -> Record | None:
    """A verdict that no journal has, as of a run whose ``setup`` failed."""
    if verdict is None:
        return None
    ends = [record for record in read_journals(folder.journals) if record.name == "Finish"]
    if ends and ends[-1].data.get("reason") == verdict.reason:
        return None
    data = {
        "outcome": verdict.state,
        "exit_code": verdict.exit_code,
        "cause": verdict.cause,
        "reason": verdict.reason,
        "tail": list(verdict.tail) or _said_by_setup(folder, verdict),
    }
    return Record(verdict.time, "action", "Finish", data)


def _said_by_setup(folder: RunFolder, verdict: Verdict) -> list[str]:
    """No rank can tell why ``setup`` failed: the last batch script's own output does."""
    output = script_output(folder)
    if verdict.cause != "setup" or output is None:
        return []
    return last_lines(output)


@dataclass(slots=True)
class JournalTail:
    """The records that were added since the last look."""

    folder: RunFolder
    _offsets: dict[Path, int] = field(default_factory=dict)
    _paths: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        """What a resumed run did before is not new."""
        for path in self.folder.journals.glob("*.jsonl"):
            self._offsets[path] = path.stat().st_size

    def new_records(self) -> list[Record]:
        """Those that can be read now; a folder that is away is looked at again the next time."""
        records: list[Record] = []
        with contextlib.suppress(OSError):
            for path in self._grown():
                records += self._new_records_of(path)
        return records

    def _grown(self) -> Iterator[Path]:
        """The newest journal and what has grown of the others, in their order.

        The newest is opened to be seen as it is, which NFS promises then only; to open all of
        them at each look would burden the file system.
        """
        if set(self.folder.journals.glob("*.jsonl")) != set(self._paths):
            self._paths = journals(self.folder.journals)
        for path in self._paths:
            if path is self._paths[-1] or path.stat().st_size > self._offsets.get(path, 0):
                yield path

    def _new_records_of(self, path: Path) -> list[Record]:
        with path.open("rb") as file:
            # A disk that is full takes a part of what is written, which is cut off again.
            seen = min(self._offsets.get(path, 0), os.fstat(file.fileno()).st_size)
            file.seek(seen)
            whole, newline, _torn = file.read().rpartition(b"\n")
        self._offsets[path] = seen + len(whole) + len(newline)
        return records_of(whole, path.stem)


class Watcher(Protocol):
    """Shows what happens to a run, on standard error or, as JSON lines, on standard output."""

    def __enter__(self) -> Watcher: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def look(self) -> None:
        """Show what is new."""

    def say(self, text: str) -> None:
        """Show a line that is not from the journal."""


@dataclass(slots=True)
class LineWatcher:
    """One line for each thing that happens."""

    tail: JournalTail
    line_of: Callable[[Record], str | None]
    write: Callable[[str], object]
    say_line: Callable[[str], str | None]
    transfers: TransferLines

    def __enter__(self) -> LineWatcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.look()

    def look(self) -> None:
        for record in self.tail.new_records():
            self._put(self.line_of(record))
        self._put(self.transfers.look())

    def say(self, text: str) -> None:
        self._put(self.say_line(text))

    def _put(self, line: str | None) -> None:
        if line is not None:
            self.write(line + "\n")


class TerminalWatcher:
    """Lines as they come, over one that says where the run stands."""

    def __init__(self, folder: RunFolder) -> None:
        from rich.console import Console

        self._folder = folder
        self._tail = JournalTail(folder)
        self._begun = time.time()
        self._console = Console(file=lasting(sys.stderr), highlight=False)
        self._status: Status = self._console.status("starting")

    def __enter__(self) -> TerminalWatcher:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.look()
        self._status.stop()

    def look(self) -> None:
        for record in self._tail.new_records():
            if (text := timed_sentence(record)) is not None:
                self._console.print(text, markup=False)
        progress = read_progress(self._folder)
        if progress is None:
            return
        text = standing(progress, time.time())
        transfer = transfer_of(progress, since=self._begun)
        if transfer is None:
            self._status.update(text)
        else:
            self._status.update(over_bar(text, transfer))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)


def standing(progress: Mapping[str, object], now: float) -> str:
    """One line about where a run stands (pure)."""
    parts = [str(progress.get("phase"))]
    if wait := waits_within(progress, now):
        parts.append(f"waits for {wait}")
    if progress.get("step") is not None:
        per_s = progress.get("steps_per_s")
        rate = f" ({per_s:.3g}/s)" if isinstance(per_s, float) else ""
        parts.append(f"step {progress['step']}{rate}")
    if progress.get("last_checkpoint") is not None:
        parts.append(f"last checkpoint: step {progress['last_checkpoint']}")
    return " · ".join(parts)


def timed_sentence(record: Record) -> str | None:
    """A record's sentence in brief after the time of day; None when it has none."""
    text = brief(record)
    return None if text is None else f"{datetime.fromtimestamp(record.time):%H:%M:%S} {text}"


def json_line(record: Record) -> str:
    """A record as a JSON line of its own."""
    return json.dumps(
        {
            "time": record.time,
            "attempt": record.attempt,
            "kind": record.kind,
            "name": record.name,
            "data": record.data,
        }
    )


def watcher(folder: RunFolder, *, as_json: bool) -> Watcher:
    """The watcher that fits: JSON lines when asked for, a terminal's own, or plain lines."""
    tail, live = JournalTail(folder), partial(read_progress, folder)
    if as_json:
        return LineWatcher(tail, json_line, flushed(sys.stdout), lambda _: None, json_lines(live))
    if sys.stderr.isatty():
        return TerminalWatcher(folder)
    return LineWatcher(
        tail, timed_sentence, flushed(sys.stderr), lambda text: text, plain_lines(live)
    )


def flushed(stream: TextIO) -> Callable[[str], object]:
    """Writes whole lines at once; to nowhere, once they cannot be written."""

    def write(line: str) -> None:
        try:
            stream.write(line)
            stream.flush()
        except OSError:  # nobody reads any more, or the terminal is gone; the run goes on
            _to_nowhere(stream.fileno())

    return write


class _Lasting(io.FileIO):
    """An open file that leads to nowhere, once it cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            _to_nowhere(self.fileno())
            return super().write(data)


def lasting(stream: TextIO) -> TextIO:
    """The same place, for who writes not only lines: a lost terminal is no error."""
    raw = _Lasting(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=stream.encoding, line_buffering=True)


def _to_nowhere(fd: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, fd)
    os.close(nowhere)
