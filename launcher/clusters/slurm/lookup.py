"""Whether a submission whose answer was lost has worked all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relight.resilience.supervise.cluster import ClusterUnavailable

PAUSES_S: Final = (1.0, 3.0, 9.0, 17.0)  # before each look
_ENOUGH: Final = 2  # empty answers in a row; after one the controller may still be at it


class SubmissionUnknown(ClusterUnavailable):
    """Raised when nobody can say whether a job was submitted: it must not be sent again."""


def find_sent(
    look: Callable[[], str | None],
    name: str,
    sleep: Callable[[float], None],
    pauses_s: tuple[float, ...] = PAUSES_S,
    *,
    shown_by: str | None = None,
) -> str | None:
    """The job that ``look`` finds after sbatch got no answer; None when it was not submitted.

    ``shown_by`` is a command for people, for a job that does not have the name of its run.

    Raises:
        SubmissionUnknown: Slurm does not say, several times.
    """
    empty = 0
    for pause_s in pauses_s:
        sleep(pause_s)
        try:
            found = look()
        except ClusterUnavailable:
            empty = 0
            continue
        if found is not None:
            return found
        empty += 1
        if empty == _ENOUGH:
            return None
    command = shown_by or f"squeue --me --name={name}"
    raise SubmissionUnknown(
        f"Slurm does not say whether {name} was submitted: sbatch got no answer, nor did "
        f"squeue after it; `{command}` shows the job once Slurm answers"
    )
