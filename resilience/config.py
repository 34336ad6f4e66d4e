"""What a supervisor is told about its run: the part of the plan that outlives the submission.

The launcher derives it from the spec and stores it in ``plan.json``; every attempt's supervisor
reads it back. Standard library only, since it is read before anything else may be imported.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relight.errors import RelightError
from relight.storage.retention import Best, Keep

RestartMode = Literal["auto", "successor", "requeue", "never"]
OnUnknown = Literal["warn", "fail"]
OnDegrade = Literal["move", "warn"]
OnNotFinite = Literal["warn", "stop", "rollback"]
# "ranks": one process per task, each under an agent. "script": the batch script itself, once.
ProgramKind = Literal["ranks", "script"]
CommandPer = Literal["task", "node"]
# When people are told: of how an attempt, or the run, has ended.
Occasion = Literal["finished", "failed", "cancelled", "restarted", "interrupted"]
ContainerRuntime = Literal["apptainer", "pyxis"]


class ConfigDamaged(RelightError):
    """Raised when the stored configuration of a run cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """An object store that every so many checkpoints are copied to, and how many stay there."""

    url: str
    every: int = 1
    last: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Where checkpoints go, how often, and how many stay."""

    directory: Path
    interval: str = "auto"  # "20 steps", "10min", "auto"
    keep: Keep = field(default_factory=Keep)
    drill: int = 0  # every so many checkpoints one is read again; 0: none is
    lead_s: float = 60.0  # how long before the time limit the run stops to save
    staging_bytes: int = 8 * 1024**3  # per rank, for saves while steps go on; 0: steps wait
    overlap: bool = False  # copy what only optimizers change while the next step computes
    tier: str | None = None  # a folder of each node, for shards before they are copied
    tier_bytes: int = 0  # of a node, for all its ranks
    compress: bool = False  # what is copied from the tier
    partner: bool = False  # each node's shards are copied into the tier of another node, too
    reuse: int = 0  # for so many saves an array that does not change is left where it is
    archive: ArchiveConfig | None = None
    signal: str | None = None  # tells a program that saves by itself to do so
    done: str | None = None  # a pattern of the files that it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartConfig:
    """How the run comes back, and when it stops trying. A newer committed step resets counters."""

    mode: RestartMode = "auto"
    failures: int = 3
    no_progress: int = 3
    walltime_s: float | None = None
    watch_hangs: bool = True
    warm: bool = True  # keep a process per rank that has the next generation's imports done
    hang_s: float | None = None  # how long no step may be done; None: learned from the steps
    silence_s: float | None = None  # how long no rank may write anything; None: for ever
    idle_s: float | None = None  # how long a rank may use no CPU; None: for ever
    not_finite: OnNotFinite = "warn"  # what is done about a loss that stays NaN or infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """Which checks run before ranks start and beside them, and what an unclear answer means.

    ``active`` adds tests that make every node work; nodes in the ledger get them anyway. ``skip``
    names checks that are not run, ``limits`` holds other thresholds, by check and name. ``mounts``
    must be mounted; ``xid_table`` replaces the one that comes with relight. ``during_s``: how often
    the cheap checks are repeated while ranks run, 0 for never.
    """

    preflight: bool = True
    active: bool = False
    budget_s: float = 30.0
    site_command: str | None = None
    on_unknown: OnUnknown = "warn"
    during_s: float = 300.0
    on_degrade: OnDegrade = "move"
    min_free_disk_bytes: int = 64 * 1024**2
    min_free_memory_bytes: int = 64 * 1024**2
    skip: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    xid_table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """Where ranks find their programs. ``mounts``: ``source`` or ``source:target[:flags]``."""

    image: str
    runtime: ContainerRuntime = "apptainer"
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConfig:
    """Who is told of what. The address of a webhook may stand in a file, as a secret does."""

    on: tuple[Occasion, ...]
    webhook: str | None = None
    webhook_file: str | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentConfig:
    """Nodes of one kind in a heterogeneous job; without a ``command`` they run that of the run."""

    name: str
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run, as its supervisors see it.

    ``nodes`` is the number of nodes that carry ranks; the allocation holds ``spares`` more. With
    ``min_nodes`` it may be fewer for a while. With ``components`` the nodes are theirs, in their
    order, and carry what they say: the numbers of the run itself have no meaning then.
    ``command`` is run once per task, in ``working_dir``, by the rank agent; with ``command_per``
    "node" once on each node, where it starts the ranks itself, as torchrun does. A ``script`` is
    run once, on the batch host, with the environment, signals and output files of the job itself.
    ``resume`` is run in its place once it has been started, and has saved where that can be seen.
    ``without_env`` are variables that a script must not find: options of ours have set them.
    ``secret_files`` maps a variable's name to the file whose content it gets at start; the content
    itself is never stored.
    """

    run_id: str
    name: str
    run_dir: Path
    command: tuple[str, ...]
    working_dir: Path
    resume: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # folders of runs that have to be done first
    program: ProgramKind = "ranks"
    command_per: CommandPer = "task"
    nodes: int = 1
    min_nodes: int | None = None
    spares: int = 0
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    components: tuple[ComponentConfig, ...] = ()
    mpi: str | None = None
    container: ContainerConfig | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    without_env: tuple[str, ...] = ()
    secret_files: Mapping[str, str] = field(default_factory=dict)
    checkpoint: CheckpointConfig
    restart: RestartConfig = field(default_factory=RestartConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    notify: NotifyConfig | None = None

    @property
    def world_size(self) -> int:
        """The number of ranks on all nodes."""
        return self.ranks_on(self.nodes)

    def ranks_on(self, nodes: int) -> int:
        """The number of ranks on so many nodes; components are always there as a whole."""
        if self.components:
            return sum(one.nodes * one.tasks_per_node for one in self.components)
        return 1 if self.program == "script" else nodes * self.tasks_per_node

    def tier_share_bytes(self, nodes: int) -> int:
        """What a rank may have in the tier of its node, and its copy in that of another."""
        most = max((one.nodes for one in self.components), default=nodes)  # partners are alike
        copies = 2 if self.checkpoint.partner and most > 1 else 1
        ranks = max((one.tasks_per_node for one in self.components), default=self.tasks_per_node)
        return self.checkpoint.tier_bytes // ranks // copies

    @property
    def uses_gpus(self) -> bool:
        """Whether GPUs were asked for, on any node."""
        return any((self.gpus_per_node, *(one.gpus_per_node for one in self.components)))

    @property
    def nodes_needed(self) -> int:
        """Without so many no attempt begins: a spare is not waited for."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def nodes_wanted(self) -> int:
        """How many an allocation holds when all is well."""
        return self.nodes + self.spares

    def to_json(self) -> dict[str, object]:
        """The configuration as JSON values (paths as text)."""
        text = json.dumps(dataclasses.asdict(self), default=str)
        loaded: dict[str, object] = json.loads(text)
        return loaded

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> RunConfig:
        """The inverse of :meth:`to_json`.

        Raises:
            ConfigDamaged: a key is missing, unknown, or holds a value of the wrong shape.
        """
        try:
            values = dict(data)
            checkpoint = dict(_mapping(values.pop("checkpoint")))
            checkpoint["directory"] = Path(str(checkpoint["directory"]))
            checkpoint["keep"] = _keep(_mapping(checkpoint["keep"]))
            checkpoint["archive"] = _archive(checkpoint.get("archive"))
            restart = _mapping(values.pop("restart"))
            health = dict(_mapping(values.pop("health")))
            health |= {name: _texts(health[name]) for name in ("skip", "mounts") if name in health}
            values["without_env"] = _texts(values.get("without_env", []))
            values |= {name: _texts(values.get(name, [])) for name in ("after", "resume")}
            command = values.pop("command")
            values["notify"] = _notify(values.get("notify"))
            values["container"] = _container(values.get("container"))
            values["components"] = tuple(map(_component, _list(values.get("components", []))))
            return cls(
                run_dir=Path(str(values.pop("run_dir"))),
                working_dir=Path(str(values.pop("working_dir"))),
                command=_texts(command),
                checkpoint=CheckpointConfig(**checkpoint),  # type: ignore[arg-type]
                restart=RestartConfig(**restart),  # type: ignore[arg-type]
                health=HealthConfig(**health),  # type: ignore[arg-type]
                **values,  # type: ignore[arg-type]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigDamaged(
                f"the stored plan of this run is not readable: {error}; submit the job again"
            ) from error


def _keep(values: Mapping[str, object]) -> Keep:
    best = values["best"]
    found = None if best is None else Best(**_mapping(best))  # type: ignore[arg-type]
    return Keep(**{**values, "best": found})  # type: ignore[arg-type]


def _archive(values: object) -> ArchiveConfig | None:
    return None if values is None else ArchiveConfig(**_mapping(values))  # type: ignore[arg-type]


def _notify(values: object) -> NotifyConfig | None:
    if values is None:
        return None
    found = dict(_mapping(values))
    found |= {name: _texts(found[name]) for name in ("on", "command")}
    return NotifyConfig(**found)  # type: ignore[arg-type]


def _container(values: object) -> ContainerConfig | None:
    if values is None:
        return None
    found = dict(_mapping(values))
    mounts = _texts(found.pop("mounts"))
    return ContainerConfig(mounts=mounts, **found)  # type: ignore[arg-type]


def _component(values: object) -> ComponentConfig:
    found = dict(_mapping(values))
    command = _texts(found.pop("command"))
    return ComponentConfig(command=command, **found)  # type: ignore[arg-type]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(text) for text in _list(value))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a mapping")
    return value
