"""What this Slurm does with a job when it wants its nodes back, and what that means for a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from relight.counted import counted
from relight.errors import RelightError
from relight.resilience.config import RunConfig

from .clusters.slurm.client import SlurmClient
from .clusters.slurm.parse import parse_seconds
from .former_runs import FormerRuns, former_runs

if TYPE_CHECKING:
    from .spec import Resources

SHORT_S = 20
# The name and an older one; srun finds them anywhere in the parameters, in any case (its srun.c).
_NO_STEPS_OVER_COMPONENTS: Final = re.compile("disable_het(?:job|ero)_steps", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition's rules that matter to a run that wants to survive."""

    name: str
    grace_s: int
    preempt_mode: str
    state: str
    max_time: str
    default: bool
    nodes: int | None = None

    @property
    def preempts(self) -> bool:
        """Whether its jobs may be preempted, as far as is known."""
        return self.preempt_mode not in ("OFF", "UNKNOWN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What this Slurm can do. ``spans_components`` says that a step may be over several components
    of a heterogeneous job."""

    version: str
    job_requeue: bool
    spans_components: bool
    kill_wait_s: int
    partitions: tuple[Partition, ...]

    def partition(self, name: str | None) -> Partition | None:
        """The named partition, or the default one."""
        return next(
            (p for p in self.partitions if (p.default if name is None else p.name == name)), None
        )


def read_site(client: SlurmClient) -> Site:
    """Asks Slurm.

    Raises:
        ClusterUnavailable, SlurmMissing, SlurmRefused: as the client.
    """
    return site_of(client.config(), client.partitions())


def site_of(config: Mapping[str, str], partitions: Sequence[Mapping[str, str]]) -> Site:
    """The site that Slurm's answers describe (pure)."""
    return Site(
        version=config.get("SLURM_VERSION", "unknown"),
        job_requeue=config.get("JobRequeue") == "1",
        spans_components=not _NO_STEPS_OVER_COMPONENTS.search(
            config.get("SchedulerParameters", "")
        ),
        kill_wait_s=parse_seconds(config.get("KillWait")) or 30,
        partitions=tuple(
            Partition(
                name=fields["PartitionName"],
                grace_s=parse_seconds(fields.get("GraceTime")) or 0,
                preempt_mode=fields.get("PreemptMode", "UNKNOWN"),
                state=fields.get("State", "UNKNOWN"),
                max_time=fields.get("MaxTime", "UNKNOWN"),
                default=fields.get("Default") == "YES",
                nodes=_whole(fields.get("TotalNodes", "")),
            )
            for fields in partitions
        ),
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def size_warnings(site: Site, resources: Resources) -> list[str]:
    """What to know of a job that a partition of it is too small for."""
    found = (
        size_warning(site, name, wanted, resources.spares)
        for name, wanted in resources.nodes_by_partition.items()
    )
    return [warning for warning in found if warning is not None]


def size_warning(site: Site, name: str | None, wanted: int, spare: int = 0) -> str | None:
    """What to know of a job that wants more nodes of a partition than it has."""
    partition = site.partition(name)
    if partition is None or partition.nodes is None or wanted <= partition.nodes:
        return None
    spares = f", {spare} of them spare" if spare else ""
    return (
        f"the job needs {counted(wanted, 'node')}{spares}, and partition {partition.name} has "
        f"{partition.nodes} in all: it will wait in vain until there are more"
    )


def components_warnings(site: Site, resources: Resources) -> list[str]:
    """What to know of a job with components that this Slurm starts no step over."""
    if site.spans_components or not resources.components:
        return []
    return [
        "this Slurm forbids steps over several components (SchedulerParameters has "
        "disable_hetjob_steps), so a run with resources.components does not start: cancel it, and "
        "ask the site's staff, or for nodes of one kind"
    ]


def preemption_warning(
    site: Site,
    partition_name: str | None,
    former_runs: Callable[[], FormerRuns],
    advice: str = "choose checkpoint.interval by what you can afford to lose",
) -> str | None:
    """What to know before a job is preempted there; None when there is time to save, as far as is
    known, and when it was said before. ``former_runs`` is asked where jobs are preempted only."""
    partition = site.partition(partition_name)
    if partition is None or not partition.preempts:
        return None
    former = former_runs()
    notice_s = partition.grace_s + site.kill_wait_s
    if former.save_s is None:
        if notice_s >= SHORT_S or former.any:
            return None
        known = "no save of this job was measured yet; one that takes longer is lost"
    elif former.save_s < notice_s:
        return None
    else:
        known = f"a save of this job took {former.save_s:.0f} s before, and would be lost"
    return (
        f"partition {partition.name} gives a preempted job {notice_s} s (GraceTime "
        f"{partition.grace_s} s, KillWait {site.kill_wait_s} s): {known}, "
        f"so {advice}"
    )


def warnings(resources: Resources, run: RunConfig) -> list[str]:
    """What to tell who has submitted this run about the site; silent when Slurm does not say."""
    site = site_for(resources.nodes_by_partition, asks_config=bool(resources.components))
    if site is None:
        return []
    directory = run.checkpoint.directory
    own = directory.is_relative_to(run.run_dir)  # new, as the run is
    former = partial(former_runs, run.name, run.run_id, None if own else directory)
    preempted = (
        preemption_warning(site, partition, former) for partition in resources.nodes_by_partition
    )
    return [
        *components_warnings(site, resources),
        *size_warnings(site, resources),
        *(warning for warning in preempted if warning),
    ]


def site_for(names: Iterable[str | None], *, asks_config: bool = False) -> Site | None:
    """What warnings about a job in these partitions need to know.

    The configuration is asked for where it matters: one of the partitions preempts, and it says how
    long is given then. None without an answer: the job is sent, and a warning is worth no failure.
    """
    client = SlurmClient(timeout_s=2.0, pauses_s=())
    try:
        partitions = client.partitions()
        bare = site_of({}, partitions)
        chosen = [bare.partition(name) for name in names]
        preempts = any(one is not None and one.preempts for one in chosen)
        return site_of(client.config(), partitions) if asks_config or preempts else bare
    except RelightError:
        return None
