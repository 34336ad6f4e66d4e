"""Which checkpoint to go on from. Manifests are the only truth, nothing points to the latest."""

from __future__ import annotations

import time
from pathlib import Path

from .condition import Candidate as Candidate
from .condition import examine, steps
from .errors import NoValidCheckpoint as NoValidCheckpoint
from .manifest import Manifest
from .set_aside import records
from .set_aside import set_aside as set_aside

_PATIENCE_S = 2.0  # in all, however many checkpoints do not answer
_PAUSE_S = 1.0


def candidates(directory: Path) -> list[Candidate]:
    """Every step folder with its condition, newest first.

    A step has one manifest at a time, so the order of steps is the order of (step, commit).
    """
    return [examine(directory, step) for step in steps(directory)]


def newest_valid(directory: Path) -> Manifest | None:
    """The checkpoint to restore; None when nothing was ever committed here.

    Only sizes are compared, bytes are checked while they are loaded: on damage, `set_aside` and ask
    again. Raises NoValidCheckpoint when there were committed checkpoints and none is valid.
    """
    reasons = []
    give_up_at_s = time.monotonic() + _PATIENCE_S
    for step in steps(directory):
        candidate = _examined(directory, step, give_up_at_s)
        if candidate.condition == "valid":
            return candidate.manifest
        if candidate.condition == "damaged":
            reasons.append(f"step {step}: {candidate.reason}")
    reasons += [
        f"step {record.step}, set aside: {record.reason}"
        for record in records(directory)
        if record.committed
    ]
    if reasons:
        raise NoValidCheckpoint(str(directory), tuple(reasons))
    return None


def _examined(directory: Path, step: int, give_up_at_s: float) -> Candidate:
    """A file system that has lost its server for a moment is asked again.

    An older checkpoint would cost what was computed since.
    """
    candidate = examine(directory, step)
    while candidate.unanswered and time.monotonic() < give_up_at_s:
        time.sleep(_PAUSE_S)
        candidate = examine(directory, step)
    return candidate
