"""What a user asks for: the models of ``job.yaml``, and nothing that reads files.

Values that people write with units (``8GB``, ``4:00:00``) are parsed here into numbers whose unit
is in the field's name or documentation. Every model refuses keys that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from relight.resilience.config import (
    CommandPer,
    ContainerRuntime,
    Occasion,
    OnDegrade,
    OnNotFinite,
    OnUnknown,
    RestartMode,
)

from .spec_checks import NamedFaults, check_checks, check_env, check_sbatch
from .spec_components import check_sbatch_of_component
from .spec_together import faults_together
from .spec_values import (
    Budget,
    Bytes,
    CheckSetting,
    Command,
    Count,
    CountOrNone,
    Every,
    HangLimit,
    Interval,
    Lead,
    Line,
    Lines,
    Mount,
    MountPoint,
    Name,
    Seconds,
    SecondsOrOff,
    SignalName,
    StoreAddress,
    Sweep,
    Variable,
    WebAddress,
    Word,
    Words,
)
from .units import DEFAULT_LEAD_S

_SHARED_BY_COMPONENTS: Final = (
    *("tasks_per_node", "cpus_per_task", "gpus_per_node", "memory", "partition"),
)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NodeRange(_Section):
    """The world may shrink to ``min`` nodes when some are lost; it begins with up to ``max``."""

    min: Count = 1
    max: Count | None = None

    @model_validator(mode="after")
    def _check_order(self) -> NodeRange:
        if self.max is None:
            raise ValueError(f"max is missing; it may be {self.min}, which is min, or more")
        if self.max < self.min:
            raise ValueError(f"max is {self.max} and min {self.min}: max must not be less")
        return self


def _kind_of_nodes(value: object) -> str:
    return "range" if isinstance(value, dict | NodeRange) else "number"


Nodes = Annotated[
    Annotated[Count, Tag("number")] | Annotated[NodeRange, Tag("range")],
    Discriminator(_kind_of_nodes),
]


class Component(_Section):
    """Nodes of one kind in a heterogeneous job. None: as in ``resources``, or the run's command."""

    name: Name
    nodes: Count = 1
    tasks_per_node: Count | None = None
    cpus_per_task: Count | None = None
    gpus_per_node: CountOrNone | None = None
    memory: Bytes | None = None
    partition: Line | None = None
    sbatch: Annotated[
        dict[str, Line | Literal[True]], AfterValidator(check_sbatch_of_component)
    ] = {}
    command: Command | None = None


class Resources(_Section):
    """What one allocation holds. ``memory`` is per node (bytes), ``time`` per attempt (seconds)."""

    nodes: Nodes = 1
    spares: CountOrNone = 0
    tasks_per_node: Count = 1
    cpus_per_task: Count = 1
    gpus_per_node: CountOrNone = 0
    memory: Bytes | None = None
    time: Seconds | None = None
    time_min: Seconds | None = None
    partition: Line | None = None
    components: list[Component] = []

    @model_validator(mode="before")
    @classmethod
    def _refuse_list(cls, value: object) -> object:
        if isinstance(value, list):
            raise ValueError("a list of nodes of several kinds stands below `components:`")
        return value

    @property
    def whole_components(self) -> list[Component]:
        """The components, each with what it leaves to the keys beside them."""
        shared = {name: getattr(self, name) for name in _SHARED_BY_COMPONENTS}
        return [
            one.model_copy(update={n: v for n, v in shared.items() if getattr(one, n) is None})
            for one in self.components
        ]

    @property
    def least_time_s(self) -> float | None:
        """How short Slurm may make an attempt."""
        return self.time if self.time_min is None else self.time_min

    @model_validator(mode="after")
    def _check_times(self) -> Resources:
        if self.time_min is not None and (self.time is None or self.time_min > self.time):
            raise ValueError("time_min needs a time that is as long or longer")
        return self

    @property
    def most_nodes(self) -> int:
        """How many nodes carry ranks when all is well."""
        if self.components:
            return sum(one.nodes for one in self.components)
        if isinstance(self.nodes, NodeRange):
            assert self.nodes.max is not None  # or it would have been refused
            return self.nodes.max
        return self.nodes

    @property
    def nodes_by_partition(self) -> Mapping[str | None, int]:
        """How many nodes the job cannot do without, of each partition; None is the default one."""
        needed: Counter[str | None] = Counter()
        for component in self.whole_components:
            needed[component.partition] += component.nodes
        return needed or {self.partition: self.least_nodes or self.most_nodes + self.spares}

    @property
    def least_nodes(self) -> int | None:
        """How many may be enough; None when the world keeps its size."""
        return self.nodes.min if isinstance(self.nodes, NodeRange) else None


class KeepBest(_Section):
    """The checkpoints with the best values of something that the program logs."""

    metric: Line
    mode: Literal["min", "max"] = "min"
    n: Count = 1


class KeepRules(_Section):
    """Which checkpoints stay. ``every`` is a number of steps or a duration."""

    last: Count = 3
    every: Every | None = None
    best: KeepBest | None = None


class Tiers(_Section):
    """A faster place on the nodes themselves, with a bound per node (bytes)."""

    node: Line
    size: Bytes = 8 * 1024**3
    partner: bool = False

    @model_validator(mode="after")
    def _check_place(self) -> Tiers:
        if not self.node.startswith("/"):
            raise ValueError(f"node: {self.node!r} is no absolute path; write for example /dev/shm")
        return self


class Archive(_Section):
    """One more copy of every so many checkpoints, in an object store."""

    url: StoreAddress
    every: Count = 1
    last: Count = 3


class Checkpoint(_Section):
    """``directory`` defaults to ``checkpoints`` in the run folder, ``lead`` to a minute or, in a
    short job, a quarter of the time limit. ``staging`` is per rank (bytes)."""

    directory: Line | None = None
    interval: Interval = "auto"
    keep: KeepRules = KeepRules()
    drill: CountOrNone = 0
    lead: Lead | None = None
    in_background: bool = Field(default=True, alias="async")  # a keyword of Python
    staging: Bytes = 8 * 1024**3
    tiers: Tiers | None = None
    archive: Archive | None = None
    reuse: CountOrNone = 0
    compress: bool = False
    overlap: bool = False
    signal: SignalName | None = None
    done: Line | None = None


class RestartRules(_Section):
    """How the run comes back and when it stops trying."""

    mode: RestartMode = "auto"
    failures: CountOrNone = 3
    no_progress: Count = 3
    walltime: Seconds | None = None
    hang: HangLimit = "auto"
    silence: Seconds | None = None
    idle: Seconds | None = None
    not_finite: OnNotFinite = "warn"
    warm: bool = True


class Health(_Section):
    """The checks before ranks start, and ``during`` their run (every so many seconds; 0: never).

    ``checks`` holds other limits of single ones, or ``off``.
    """

    preflight: Literal["default", "active", "off"] = "default"
    site_command: Line | None = None
    on_unknown: OnUnknown = "warn"
    during: SecondsOrOff = 300.0
    on_degrade: OnDegrade = "move"
    budget: Budget = 30.0
    min_free_disk: Bytes = 64 * 1024**2
    min_free_memory: Bytes = 64 * 1024**2
    checks: Annotated[dict[str, CheckSetting], BeforeValidator(check_checks)] = {}
    mounts: list[MountPoint] = []
    xid_table: Line | None = None


class Container(_Section):
    """An image that ranks run in, and what it sees of the nodes beside the run's own folders."""

    image: Line
    runtime: ContainerRuntime = "apptainer"
    mounts: list[Mount] = []


class SecretFile(_Section):
    """A file whose content a variable gets when ranks start; it is read nowhere else."""

    file: Line


def _kind_of_webhook(value: object) -> str:
    return "file" if isinstance(value, dict | SecretFile) else "address"


Webhook = Annotated[
    Annotated[WebAddress, Tag("address")] | Annotated[SecretFile, Tag("file")],
    Discriminator(_kind_of_webhook),
]


class Notify(_Section):
    """Who is told when the run, or an attempt of it, has ended."""

    on: list[Occasion] = ["finished", "failed"]
    webhook: Webhook | None = None
    command: Command | None = None

    @model_validator(mode="after")
    def _check_way(self) -> Notify:
        if self.webhook is None and self.command is None:
            raise ValueError("nobody is told: write a webhook, a command, or both")
        return self


class JobSpec(_Section):
    """One run. ``working_dir`` defaults to where the command was given, as in sbatch, ``name`` to
    that of the file; ``include`` is done with once the spec is read."""

    name: Name = "job"
    include: Lines = []
    command: Command
    command_per: CommandPer | None = None
    resume: Command | None = None
    resources: Resources = Resources()
    sbatch: Annotated[dict[str, Line | Literal[True]], AfterValidator(check_sbatch)] = {}
    after: Words = []
    sweep: Sweep | None = None
    at_once: Count | None = None
    setup: list[str] = []
    env: Annotated[dict[Variable, Word], AfterValidator(check_env)] = {}
    secrets: dict[Variable, SecretFile] = {}
    mpi: Line | None = None
    container: Container | None = None
    checkpoint: Checkpoint = Checkpoint()
    restart: RestartRules = RestartRules()
    health: Health = Health()
    notify: Notify | None = None
    code: Literal["snapshot"] | None = None
    run_dir: Line | None = None
    working_dir: Line | None = None

    @property
    def lead_s(self) -> float:
        """How long before the time limit the run stops to save."""
        if self.checkpoint.lead is not None:
            return self.checkpoint.lead
        limit_s = self.resources.least_time_s
        return DEFAULT_LEAD_S if limit_s is None else min(DEFAULT_LEAD_S, limit_s / 4)

    @model_validator(mode="after")
    def _check_together(self) -> JobSpec:
        if faults := [*faults_together(self)]:
            raise NamedFaults(faults)
        return self
