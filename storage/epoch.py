"""Who holds a checkpoint directory: numbered claims, the highest one fences all earlier ones.

A claim is a link to the next free number, so exactly one process gets each. Committing asks for the
newest claim just before it links the manifest. A process that is paused between the two can still
commit one more step after a later claim; that checkpoint is complete and replaces nothing.
"""

from __future__ import annotations

import errno
from datetime import UTC, datetime
from pathlib import Path

from .durable import make_dirs, publish_new
from .errors import Fenced
from .layout import Incarnation, epoch_of, epoch_path, epochs_dir
from .sealed import Json, field, seal, unseal


def claim_epoch(directory: Path, incarnation: Incarnation, run: str = "") -> int:
    """Takes the directory over, and returns the number under which to commit. Raises OSError.

    ``run`` is told to whoever held it before: another attempt of a run is no other run.
    """
    make_dirs(epochs_dir(directory))
    epoch = newest_epoch(directory)
    while True:
        epoch += 1
        body: dict[str, Json] = {
            "epoch": epoch,
            "attempt": incarnation.attempt,
            "generation": incarnation.generation,
            **({"run": run} if run else {}),
            "created": datetime.now(UTC).isoformat(),
        }
        if publish_new(epoch_path(directory, epoch), seal(body)):
            return epoch


def newest_epoch(directory: Path) -> int:
    """The number of the last claim, 0 before the first."""
    return max(_claims(directory), default=0)


def check_holding(directory: Path, epoch: int) -> None:
    """Raises Fenced when somebody has claimed the directory since, OSError when claims are gone."""
    newest = newest_epoch(directory)
    if newest > epoch:
        raise Fenced(str(directory), epoch, newest, _run_of(directory, newest))
    if newest < epoch:
        raise FileNotFoundError(
            errno.ENOENT,
            "what this run had written there is gone; was it deleted, moved or unmounted?",
            str(directory),
        )


def claims(directory: Path) -> dict[Incarnation, int]:
    """The last claim of every incarnation; a claim that cannot be read names nobody."""
    held: dict[Incarnation, int] = {}
    for epoch in _claims(directory):
        try:
            body = unseal(epoch_path(directory, epoch).read_bytes())
            attempt, generation = field(body, "attempt", str), field(body, "generation", int)
            held[Incarnation(attempt, generation)] = epoch
        except (OSError, ValueError):
            continue
    return held


def _run_of(directory: Path, epoch: int) -> str:
    """Whose claim it is; empty where that is not known."""
    try:
        return str(unseal(epoch_path(directory, epoch).read_bytes()).get("run", ""))
    except (OSError, ValueError):
        return ""


def _claims(directory: Path) -> list[int]:
    try:
        names = [path.name for path in epochs_dir(directory).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(epoch for name in names if (epoch := epoch_of(name)) is not None)
