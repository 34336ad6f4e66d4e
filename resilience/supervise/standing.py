"""Two small files for people and programs outside: where the run stands, and how it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from relight.errors import RelightError

from ..decide.actions import Finish
from ..run_folder import RunFolder
from .transfers import Transfer
from .trouble import Trouble
from .waits import Wait


class VerdictDamaged(RelightError):
    """Raised when the file that says how a run ended cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an attempt stands. ``step`` is the step that every rank has reached; the time limit
    ends the attempt at ``end_time`` (Unix seconds)."""

    attempt: str
    job_id: str
    generation: int
    phase: str
    step: int | None
    nodes: tuple[str, ...]
    excluded: tuple[Mapping[str, str], ...]
    last_checkpoint: int | None
    steps_per_s: float | None
    end_time: float | None
    transfer: Transfer | None  # the save or restore that goes on, where it takes long
    wait: Wait | None  # what it waits for while no steps are done
    health: tuple[str, ...]  # what the checks during the run have to say


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a run ended; as long as there is none it may go on."""

    state: str
    exit_code: int
    cause: str
    reason: str
    tail: tuple[str, ...]
    time: float


class Progress:
    """For watchers only: replaced whole, not synced; a disk that refuses is no reason to stop."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.progress
        self._trouble = Trouble(str(self._path))

    def write(self, standing: Standing, now: float) -> None:
        """Shows it, if that is possible now."""
        try:
            write_whole(self._path, {"time": now, **asdict(standing)}, durable=False)
        except OSError as error:
            self._trouble.met(error)
        else:
            self._trouble.over()


def verdict_of(order: Finish, now: float) -> Verdict:
    """How a run ended by this decision."""
    return Verdict(
        state=order.outcome.value,
        exit_code=order.exit_code,
        cause=order.cause,
        reason=order.reason,
        tail=order.tail,
        time=now,
    )


def write_verdict(folder: RunFolder, order: Finish, now: float) -> None:
    """Durable: what must not start again depends on it. Raises OSError."""
    write_whole(folder.verdict, asdict(verdict_of(order, now)), durable=True)


def read_verdict(folder: RunFolder) -> Verdict | None:
    """None while the run may go on.

    Raises:
        VerdictDamaged: the file is there, and does not say how the run ended.
    """
    try:
        raw = json.loads(folder.verdict.read_text())
        return Verdict(**{**raw, "tail": tuple(raw["tail"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise VerdictDamaged(
            f"{folder.verdict} is damaged ({error}): nobody can say how the run ended; `relight "
            "history` may tell, and without this file the run may go on"
        ) from error


def write_whole(path: Path, content: Mapping[str, object], *, durable: bool) -> None:
    """A file of JSON that is replaced whole, or stays as it was. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w") as file:
            json.dump(content, file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
