"""From a spec to what is sent to Slurm: without bad nodes, after the runs that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relight.errors import UsageError
from relight.resilience.supervise.cluster import ClusterUnavailable

from ..asked import Asked
from ..avoidance import avoid_known_bad
from ..clusters.slurm.client import SlurmClient, SlurmMissing
from ..launch_plan import LaunchPlan
from ..plan import plan
from ..spec import JobSpec

if TYPE_CHECKING:
    from ..dependencies import Waiting
    from ..sweep_plan import SweepPlan


_USUAL_ARRAY: Final = 1001  # MaxArraySize, where slurm.conf does not say


@dataclass(frozen=True, slots=True)
class Planned:
    """``notes`` tell the user what was done about bad nodes; ``launch`` is the first array of a
    sweep."""

    launch: LaunchPlan
    waiting: Waiting | None
    notes: tuple[str, ...]
    sweep: SweepPlan | None = None


def planned(asked: Asked, *, sends: bool = True) -> Planned:
    """Asks Slurm only where the ledger or the spec names nodes or runs, or for a sweep: how many
    tasks an array may have. Where nothing is sent Slurm's own default will do instead.

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

    sweep = sweep_plan(spec, held, asked.submitter, after, _most_tasks(sends=sends))
    return Planned(sweep.arrays[0][1], waiting, avoidance.notes, sweep)


def _waiting(spec: JobSpec) -> Waiting | None:
    if not spec.after:
        return None
    from ..dependencies import resolve

    return resolve(spec.after, SlurmClient())


def _most_tasks(*, sends: bool) -> int:
    client = SlurmClient() if sends else SlurmClient(timeout_s=5.0, pauses_s=())
    try:
        size = client.config().get("MaxArraySize", "")
    except (ClusterUnavailable, SlurmMissing):
        if sends:
            raise
        return _USUAL_ARRAY
    if size.isdecimal() and int(size) > 1:
        return int(size)
    raise UsageError(f"this Slurm allows no job arrays (MaxArraySize is {size or 'unknown'})")
