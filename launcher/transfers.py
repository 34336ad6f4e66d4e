"""The save or restore that goes on in a run: as a sentence, a bar, and lines of a log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from relight.resilience.supervise.transfers import Transfer

from .units import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

_SAYING: Final = {"save": "saving step", "restore": "restoring step", "copy": "copying step"}
_LINE_EVERY_S: Final = 10.0
_LOOK_EVERY_S: Final = 1.0
Live = Mapping[str, object]  # the progress file


def transfer_of(progress: Live, since: float = 0.0) -> Transfer | None:
    """What the progress file says of it, if it was written ``since`` then (pure).

    None where nothing goes on.
    """
    raw, wrote = progress.get("transfer"), progress.get("time")
    if not isinstance(raw, Mapping) or not isinstance(wrote, float) or wrote < since:
        return None
    try:
        return Transfer(**raw)
    except TypeError:  # another version of this program has written it
        return None


def sentence(transfer: Transfer) -> str:
    """How far it is, how fast, what is left, and who is the slowest (pure)."""
    name = f"{_heading(transfer)}: {_of(transfer)}"
    return ", ".join([name, _speed(transfer), *_rest(transfer)])


def over_bar(text: RenderableType, transfer: Transfer) -> RenderableType:
    """For a terminal: a text, and below it the same as a bar like those of ``relight ckpt``."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(padding=(0, 1))
    row.add_row(
        _heading(transfer),
        ProgressBar(max(transfer.total_bytes, 1), transfer.done_bytes, width=40),
        _of(transfer),
        _speed(transfer),
        ", ".join(_rest(transfer)),
    )
    return Group(text, row)


@dataclass(slots=True)
class TransferLines:
    """Of one that lasts, a line now and then; ``read`` gives the progress file."""

    read: Callable[[], Live | None]
    line_of: Callable[[Live, Transfer], str]
    every_s: float
    said: float  # when the last one was, or from when on they are wanted (Unix seconds)
    _looked: float = 0.0

    def look(self) -> str | None:
        """The line that is due."""
        if time.monotonic() - self._looked < _LOOK_EVERY_S:
            return None
        self._looked = time.monotonic()
        progress = self.read() or {}
        transfer = transfer_of(progress, since=self.said + self.every_s)
        if transfer is None or transfer.seconds < self.every_s:
            return None
        self.said = time.time()
        return self.line_of(progress, transfer)


def plain_lines(read: Callable[[], Live | None]) -> TransferLines:
    """For a log."""

    def line(_: Live, transfer: Transfer) -> str:
        return f"{time.strftime('%H:%M:%S')} {sentence(transfer)}"

    return TransferLines(read, line, _LINE_EVERY_S, time.time())


def json_lines(read: Callable[[], Live | None]) -> TransferLines:
    """For a program: like a record of the journal, which has none of this."""

    def line(progress: Live, transfer: Transfer) -> str:
        about = {"time": progress["time"], "attempt": progress.get("attempt")}
        return json.dumps({**about, "kind": "live", "name": "Transfer", "data": asdict(transfer)})

    return TransferLines(read, line, _LOOK_EVERY_S, time.time())


def _heading(transfer: Transfer) -> str:
    to = " to the checkpoint directory" if transfer.what == "copy" else ""
    return f"{_SAYING.get(transfer.what, transfer.what)} {transfer.step}{to}"


def _of(transfer: Transfer) -> str:
    """Both amounts in the unit of the total: ``3.2 of 8.0 GB``."""
    for unit, width in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if transfer.total_bytes >= width:
            done, total = transfer.done_bytes / width, transfer.total_bytes / width
            return f"{done:.1f} of {total:.1f} {unit}"
    return f"{transfer.done_bytes / 1e3:.0f} of {transfer.total_bytes / 1e3:.0f} kB"


def _speed(transfer: Transfer) -> str:
    """None is known before something is there: a small copy comes as a whole."""
    if transfer.done_bytes == 0:
        return f"{_duration(transfer.seconds)} so far"
    return f"{amount(transfer.bytes_per_s)}/s"


def _rest(transfer: Transfer) -> list[str]:
    parts = []
    if transfer.done_bytes >= transfer.total_bytes:
        parts.append("flushing" if transfer.what == "save" else "done")
    elif transfer.left_s is not None:
        parts.append(f"{_duration(transfer.left_s)} left")
    if transfer.ranks_done:
        parts.append(f"{transfer.ranks_done} of {transfer.ranks} ranks done")
    if transfer.slowest_rank is not None:
        where = "" if transfer.slowest_node is None else f" ({transfer.slowest_node})"
        parts.append(f"slowest rank {transfer.slowest_rank}{where}")
    return parts


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
