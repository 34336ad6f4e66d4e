"""What a user asks for: the models of ``job.yaml``, and nothing that reads files.

Values that people write with units (``8GB``, ``4:00:00``) are parsed here into numbers whose unit
is in the field's name or documentation. Every model refuses keys that it does not know.
"""

from __future__ import annotations

import re
import shlex
from itertools import product
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)

from relight.resilience.config import ContainerRuntime, OnDegrade, OnUnknown, RestartMode
from relight.resilience.messages import PASSED_ON

from .spec_checks import NamedFaults, check_checks, check_env, check_sbatch
from .units import check_interval, parse_bytes, parse_duration, parse_every

DEFAULT_LEAD_S: Final = 60.0
MOST_POINTS: Final = 10_000
LONGEST_LEAD_S: Final = 65_535  # of sbatch --signal

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"
VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SHELL_WORDS: Final = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not text: put it in quotes")


def _with_unit(value: object, such_as: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not text with a unit; write for example {such_as}")


def _bytes(value: object) -> int:
    return parse_bytes(_with_unit(value, "8GB or 512MB"))


def _seconds(value: object) -> float:
    return parse_duration(_with_unit(value, "90s, 10min, 4h, 7d or 4:00:00"))


def _lead(value: object) -> float:
    lead_s = _seconds(value)
    if lead_s > LONGEST_LEAD_S:
        raise ValueError(f"{value!r} is too long: Slurm warns at most {LONGEST_LEAD_S} s before")
    return lead_s


def _hang_limit(value: object) -> str:
    text = _with_unit(value, "10min, auto or off")
    if text not in ("auto", "off"):
        parse_duration(text)
    return text


def _every(value: object) -> str:
    text = _with_unit(value, "1000 steps or 6h")
    parse_every(text)
    return text


def _seconds_or_off(value: object) -> float:
    return 0.0 if value in (0, "0", "off") else _seconds(value)  # False, which is 0, is YAML's off


def _interval(value: object) -> str:
    return check_interval(_with_unit(value, "auto, 20 steps or 10min"))


def _word(value: object) -> str:
    """Text, or a number written without quotes; other YAML values lose their spelling."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"{value!r} holds a NUL byte, which no program can be given")
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # of a number in YAML, its spelling
    raise ValueError(f"{value!r} is not text: put it in quotes")


def _command(value: object) -> list[str]:
    if isinstance(value, list):
        words = [_word(word) for word in value]
    else:
        words = shlex.split(_text(value))
        for word in words:
            if word in _SHELL_WORDS:
                raise ValueError(
                    f"the command is not run by a shell, so {word!r} has no meaning in it; "
                    "write command: [bash, -c, '...']"
                )
    if not words:
        raise ValueError("the command is empty")
    return words


def _sweep(value: object) -> list[dict[str, str]]:
    """A grid, or a list of points, as the list of its points."""
    if isinstance(value, dict):
        names = [_sweep_name(name) for name in value]
        axes = [_axis(name, value[name]) for name in names]
        points = [dict(zip(names, values, strict=True)) for values in product(*axes)]
    elif isinstance(value, list):
        points = [_point(point) for point in value]
    else:
        raise ValueError("write {lr: [0.1, 0.2], seed: [1, 2]}, or a list of {lr: 0.1, seed: 1}")
    if not 1 <= len(points) <= MOST_POINTS:
        raise ValueError(f"{len(points)} points; there must be 1 to {MOST_POINTS}")
    if any(point.keys() != points[0].keys() for point in points):
        raise ValueError("all points must give the same names")
    return points


def _axis(name: str, values: object) -> list[str]:
    if not isinstance(values, list):
        raise ValueError(f"{name}: write the values as a list, such as [1, 2]")
    return [_scalar(value) for value in values]


def _point(point: object) -> dict[str, str]:
    if not isinstance(point, dict):
        raise ValueError(f"{point!r} is no point; write {{lr: 0.1, seed: 1}}")
    return {_sweep_name(name): _scalar(value) for name, value in point.items()}


def _sweep_name(name: object) -> str:
    if not isinstance(name, str) or re.fullmatch(VARIABLE, name) is None:
        raise ValueError(f"{name!r} is no name; letters, digits and _ make one")
    return name


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _word(value)


def _words(value: object) -> list[str]:
    return [_word(word) for word in (value if isinstance(value, list) else [value])]


def _signal(value: object) -> str:
    name = "SIG" + _text(value).upper().removeprefix("SIG")
    if name not in PASSED_ON:
        raise ValueError(f"{value!r} is no signal that can be sent; write for example USR1")
    return name


def _lines(value: object) -> list[str]:
    return [_one_line(line) for line in (value if isinstance(value, list) else [value])]


def _one_line(value: object) -> str:
    text = _word(value)
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} must be one line of printable text")
    return text


def _mount(value: str) -> str:
    if "," in value or not re.fullmatch(r"[/~][^:]*(:/[^:]*(:[a-z+]+)?)?", value):
        raise ValueError(f"{value!r} is no mount; write /source, /source:/target or ...:ro")
    return value


_WITH_UNIT: Final[dict[str, object]] = {"type": "string"}
Bytes = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(_WITH_UNIT)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_WITH_UNIT)]
Lead = Annotated[float, BeforeValidator(_lead), WithJsonSchema(_WITH_UNIT)]
SecondsOrOff = Annotated[float, BeforeValidator(_seconds_or_off), WithJsonSchema(_WITH_UNIT)]
Interval = Annotated[str, BeforeValidator(_interval)]
Every = Annotated[str, BeforeValidator(_every)]
HangLimit = Annotated[str, BeforeValidator(_hang_limit)]
Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]})]
Line = Annotated[str, BeforeValidator(_one_line)]
Sweep = Annotated[
    list[dict[str, str]], BeforeValidator(_sweep), WithJsonSchema({"type": ["object", "array"]})
]
Words = Annotated[
    list[str],
    BeforeValidator(_words),
    WithJsonSchema({"type": ["string", "number", "array"]}),
]
SignalName = Annotated[str, BeforeValidator(_signal)]
Lines = Annotated[
    list[str],
    BeforeValidator(_lines),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
Command = Annotated[
    list[str],
    BeforeValidator(_command),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": ["string", "number"]}}),
]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
CheckSetting = Literal[False, "off"] | dict[str, float]  # an unquoted off is false in YAML


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


class Resources(_Section):
    """What one allocation holds. ``memory`` is per node (bytes), ``time`` per attempt (seconds)."""

    nodes: Nodes = 1
    spares: CountOrNone = 0
    tasks_per_node: Count = 1
    cpus_per_task: Count = 1
    gpus_per_node: CountOrNone = 0
    memory: Bytes | None = None
    time: Seconds | None = None
    partition: Line | None = None

    @property
    def most_nodes(self) -> int:
        """How many nodes carry ranks when all is well."""
        if isinstance(self.nodes, NodeRange):
            assert self.nodes.max is not None  # or it would have been refused
            return self.nodes.max
        return self.nodes

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
    reuse: CountOrNone = 0
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
    budget: Seconds = 30.0
    min_free_disk: Bytes = 64 * 1024**2
    min_free_memory: Bytes = 64 * 1024**2
    checks: Annotated[dict[str, CheckSetting], AfterValidator(check_checks)] = {}
    mounts: list[Line] = []
    xid_table: Line | None = None


class Container(_Section):
    """An image that ranks run in, and what it sees of the nodes beside the run's own folders."""

    image: Line
    runtime: ContainerRuntime = "apptainer"
    mounts: list[Annotated[Line, AfterValidator(_mount)]] = []


class SecretFile(_Section):
    """A file whose content a variable gets when ranks start; it is read nowhere else."""

    file: Line


class JobSpec(_Section):
    """One run. ``working_dir`` defaults to where the command was given, as in sbatch, ``name`` to
    that of the file; ``include`` is done with once the spec is read."""

    name: Name = "job"
    include: Lines = []
    command: Command
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
    code: Literal["snapshot"] | None = None
    run_dir: Line | None = None
    working_dir: Line | None = None

    @property
    def lead_s(self) -> float:
        """How long before the time limit the run stops to save."""
        if self.checkpoint.lead is not None:
            return self.checkpoint.lead
        limit_s = self.resources.time
        return DEFAULT_LEAD_S if limit_s is None else min(DEFAULT_LEAD_S, limit_s / 4)

    @model_validator(mode="after")
    def _check_together(self) -> JobSpec:
        if self.after and any(name.lstrip("-") == "dependency" for name in self.sbatch):
            fault = "after: sbatch.dependency is given too; name its jobs here, or leave this out"
            raise NamedFaults([fault])
        limit_s, lead_s = self.resources.time, self.checkpoint.lead
        if limit_s is not None and lead_s is not None and lead_s > limit_s / 2:
            fault = (
                f"checkpoint.lead: {lead_s:g} s is more than half of resources.time "
                f"({limit_s:g} s), so the run would stop before it has done anything"
            )
            raise NamedFaults([fault])
        return self
