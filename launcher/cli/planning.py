"""From a spec to what is sent to Slurm: without bad nodes, after the runs that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..asked import Asked
from ..avoidance import avoid_known_bad
from ..clusters.slurm.client import SlurmClient
from ..launch_plan import LaunchPlan
from ..plan import plan

if TYPE_CHECKING:
    from ..dependencies import Waiting


@dataclass(frozen=True, slots=True)
class Planned:
    """``notes`` tell the user what was done about bad nodes."""

    launch: LaunchPlan
    waiting: Waiting | None
    notes: tuple[str, ...]


def planned(asked: Asked) -> Planned:
    """Asks Slurm only where the ledger or the spec names nodes or runs.

    Raises:
        UsageError: the spec waits for a run that is not there, or has failed.
        ClusterUnavailable, SlurmMissing: Slurm does not say which jobs that run has.
    """
    spec, avoidance = avoid_known_bad(asked.spec)
    if not spec.after:
        return Planned(plan(spec, asked.submitter, "slurm"), None, avoidance.notes)
    from ..dependencies import resolve

    waiting = resolve(spec.after, SlurmClient())
    if waiting.option is not None:
        spec = spec.model_copy(update={"sbatch": {**spec.sbatch, "dependency": waiting.option}})
    launch = plan(spec, asked.submitter, "slurm").after(waiting.folders)
    return Planned(launch, waiting, avoidance.notes)
