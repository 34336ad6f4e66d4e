"""What ranks have written: all of it, or what is new, over all attempts of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relight.errors import UsageError
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.journal import journals

_PIECE_BYTES: Final = 1024**2
_LONG_BYTES: Final = 64 * 1024
_LAST: Final = 5  # lines that tell of an end
_ENDED: Final = re.compile(rb"\r?\n|\r(?=[^\n])")  # the lines of a progress bar end with \r alone


@dataclass(frozen=True, slots=True)
class RankLog:
    """The output of one rank in one generation."""

    attempt: str
    generation: int
    rank: int
    path: Path


def rank_logs(
    folder: RunFolder, attempt: str | None = None, rank: int | None = None
) -> list[RankLog]:
    """The logs, oldest attempt first, then by generation and rank; of one attempt, or one rank.

    ``attempt`` is its name (``<job id>.<restart count>``) or its number, from 1.

    Raises:
        UsageError: there is no such attempt, or no such rank.
    """
    attempts = [journal.stem for journal in journals(folder.journals)]
    logs = [
        log
        for name in (attempts if attempt is None else [_named(attempt, attempts)])
        for log in sorted(_of_attempt(folder, name), key=lambda log: (log.generation, log.rank))
    ]
    ranks = {log.rank for log in logs}
    if rank is not None and ranks and rank not in ranks:
        raise UsageError(
            f"there is no log of rank {rank}; there are those of {min(ranks)} to {max(ranks)} "
            "(below torchrun a node has one, of its first rank)"
        )
    return [log for log in logs if rank is None or log.rank == rank]


def script_output(folder: RunFolder) -> Path | None:
    """What the last batch script of a run, and ``setup`` in it, has written."""
    outputs = sorted(folder.attempts.glob("*.out"), key=lambda path: path.stat().st_mtime)
    return outputs[-1] if outputs else None


def last_lines(path: Path) -> list[str]:
    """The end of an output: it tells why."""
    return [line for line in LogTail(path).new_lines(to_the_end=True) if line.strip()][-_LAST:]


def _named(wanted: str, attempts: Sequence[str]) -> str:
    if wanted in attempts:
        return wanted
    if wanted.isdecimal() and 1 <= int(wanted) <= len(attempts):
        return attempts[int(wanted) - 1]
    raise UsageError(
        f"there is no attempt {wanted!r}; there are 1 to {len(attempts)}: {', '.join(attempts)}"
        if attempts
        else "the run has made no attempt yet"
    )


def _of_attempt(folder: RunFolder, attempt: str) -> Iterator[RankLog]:
    for path in folder.logs(attempt).glob("*/*.log"):
        if path.stem.isdecimal() and path.parent.name.isdecimal():
            yield RankLog(attempt, int(path.parent.name), int(path.stem), path)


@dataclass(slots=True)
class LogTail:
    """The lines that a log has gained since the last look; a very long one in pieces."""

    path: Path
    _offset: int = field(default=0)

    def new_lines(self, *, to_the_end: bool = False) -> Iterator[str]:
        """``to_the_end`` takes a last line, too, that is not ended."""
        rest = b""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while piece := file.read(_PIECE_BYTES):
                    *lines, rest = _ENDED.split(text := rest + piece)
                    if len(rest) > _LONG_BYTES:  # not to be read again and again until it ends
                        lines, rest = [*lines, rest], b""
                    self._offset += len(text) - len(rest)
                    yield from map(_shown, lines)
        except FileNotFoundError:  # the run folder is gone
            return
        if rest and to_the_end:
            self._offset += len(rest)
            yield _shown(rest.rstrip(b"\r"))


def _shown(line: bytes) -> str:
    """Without zeros: a crash leaves holes in a file, and a terminal or ``grep`` takes them ill."""
    return line.replace(b"\0", b"").decode(errors="replace")
