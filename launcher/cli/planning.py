"""From a spec to what is sent to Slurm: without bad nodes, after the runs that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relight.errors import UsageError

from ..asked import Asked
from ..avoidance import avoid_known_bad
from ..clusters.slurm.client import SlurmClient
from ..launch_plan import LaunchPlan
from ..plan import plan
from ..spec import JobSpec

if TYPE_CHECKING:
    from ..dependencies import Waiting
    from ..sweep_plan import SweepPlan


@dataclass(frozen=True, slots=True)
class Planned:
    """``notes`` tell the user what was done about bad nodes; ``launch`` is the first array of a
    sweep."""

    launch: LaunchPlan
    waiting: Waiting | None
    notes: tuple[str, ...]
    sweep: SweepPlan | None = None


def planned(asked: Asked) -> Planned:
    """Asks Slurm only where the ledger or the spec names nodes or runs, or for a sweep.

    Raises:
        UsageError: the spec waits for a run that is not there, or has failed; there are no arrays.
        ClusterUnavailable, SlurmMissing: Slurm does not answer what has to be known.
    """
    spec, avoidance = avoid_known_bad(asked.spec)
    waiting = _waiting(spec)
    after = () if waiting is None else waiting.folders
    held = spec
    if waiting is not None and waiting.option is not None:
        held = spec.model_copy(update={"sbatch": {**spec.sbatch, "dependency": waiting.option}})
    if spec.sweep is None:
        launch = plan(held, asked.submitter, "slurm").after(after)
        return Planned(launch, waiting, avoidance.notes)
    from ..sweep_plan import sweep_plan

    sweep = sweep_plan(spec, held, asked.submitter, after, _most_tasks(SlurmClient()))
    return Planned(sweep.arrays[0][1], waiting, avoidance.notes, sweep)


def _waiting(spec: JobSpec) -> Waiting | None:
    if not spec.after:
        return None
    from ..dependencies import resolve

    return resolve(spec.after, SlurmClient())


def _most_tasks(client: SlurmClient) -> int:
    size = client.config().get("MaxArraySize", "")
    if size.isdecimal() and int(size) > 1:
        return int(size)
    raise UsageError(f"this Slurm allows no job arrays (MaxArraySize is {size or 'unknown'})")
