"""What a user asks for: the models of ``job.yaml``, and nothing that reads files.

Values that people write with units (``8GB``, ``4:00:00``) are parsed here into numbers whose unit
is in the field's name or documentation. Every model refuses keys that it does not know.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from relight.resilience.config import OnUnknown, RestartMode

from .units import check_interval, parse_bytes, parse_duration

DEFAULT_LEAD_S: Final = 60.0

_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SHELL_WORDS: Final = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})
_SECRET_ENDINGS: Final = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|(API|ACCESS|PRIVATE|SECRET)_?KEY)$",
    re.IGNORECASE,
)
# sbatch options that relight sets itself, and where the spec says the same thing.
_OWN_OPTIONS: Final = {
    "job-name": "name",
    "nodes": "resources.nodes",
    "ntasks": "resources.nodes and resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "cpus-per-task": "resources.cpus_per_task",
    "gpus-per-node": "resources.gpus_per_node",
    "mem": "resources.memory",
    "time": "resources.time",
    "partition": "resources.partition",
    "signal": "checkpoint.lead",
    "chdir": "working_dir",
    "output": "run_dir",
    "error": "run_dir",
    "requeue": "restart.mode",
    "no-requeue": "restart.mode",
    "no-kill": "nothing: it is always set",
    "open-mode": "nothing: it is always append",
    "array": "nothing: submit one run per task",
    "wrap": "command",
    "parsable": "nothing",
    "test-only": "relight plan",
}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} needs a unit, or is not text")


def _bytes(value: object) -> int:
    return parse_bytes(_text(value))


def _seconds(value: object) -> float:
    return parse_duration(_text(value))


def _interval(value: object) -> str:
    return check_interval(_text(value))


def _word(value: object) -> str:
    """Text, or a whole number written without quotes; other YAML values lose their spelling."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
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


def _one_line(value: object) -> str:
    text = _word(value)
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} must be one line of printable text")
    return text


_WITH_UNIT: Final[dict[str, object]] = {"type": "string"}
Bytes = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(_WITH_UNIT)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(_WITH_UNIT)]
Interval = Annotated[str, BeforeValidator(_interval)]
Word = Annotated[str, BeforeValidator(_word), WithJsonSchema({"type": ["string", "integer"]})]
Line = Annotated[str, BeforeValidator(_one_line)]
Command = Annotated[
    list[str],
    BeforeValidator(_command),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": ["string", "integer"]}}),
]
Variable = Annotated[str, StringConstraints(pattern=_VARIABLE)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Resources(_Section):
    """What one allocation holds. ``memory`` is per node (bytes), ``time`` per attempt (seconds)."""

    nodes: Count = 1
    spares: CountOrNone = 0
    tasks_per_node: Count = 1
    cpus_per_task: Count = 1
    gpus_per_node: CountOrNone = 0
    memory: Bytes | None = None
    time: Seconds | None = None
    partition: Line | None = None


class Keep(_Section):
    """How many checkpoints stay."""

    last: Count = 3


class Checkpoint(_Section):
    """``directory`` defaults to ``checkpoints`` in the run folder, ``lead`` to a minute or, in a
    short job, a quarter of the time limit."""

    directory: Line | None = None
    interval: Interval = "auto"
    keep: Keep = Keep()
    lead: Seconds | None = None


class RestartRules(_Section):
    """How the run comes back and when it stops trying."""

    mode: RestartMode = "auto"
    failures: CountOrNone = 3
    no_progress: Count = 3
    walltime: Seconds | None = None


class Health(_Section):
    """The checks before ranks start."""

    preflight: Literal["default", "off"] = "default"
    site_command: Line | None = None
    on_unknown: OnUnknown = "warn"
    budget: Seconds = 30.0
    min_free_disk: Bytes = 64 * 1024**2
    min_free_memory: Bytes = 64 * 1024**2


class SecretFile(_Section):
    """A file whose content a variable gets when ranks start; it is read nowhere else."""

    file: Line


class JobSpec(_Section):
    """One run. ``working_dir`` defaults to where the command was given, as in sbatch."""

    name: Name = "job"
    command: Command
    resources: Resources = Resources()
    sbatch: dict[str, Line | Literal[True]] = {}
    setup: list[str] = []
    env: dict[Variable, Word] = {}
    secrets: dict[Variable, SecretFile] = {}
    mpi: Line | None = None
    checkpoint: Checkpoint = Checkpoint()
    restart: RestartRules = RestartRules()
    health: Health = Health()
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
        faults = [*_sbatch_faults(self.sbatch), *_env_faults(self.env)]
        limit_s, lead_s = self.resources.time, self.checkpoint.lead
        if limit_s is not None and lead_s is not None and lead_s > limit_s / 2:
            faults.append(
                f"checkpoint.lead: {lead_s:g} s is more than half of resources.time "
                f"({limit_s:g} s), so the run would stop before it has done anything"
            )
        if faults:
            raise ValueError("\n".join(faults))
        return self


def _sbatch_faults(options: dict[str, str | Literal[True]]) -> list[str]:
    faults = []
    for option in options:
        name = option.lstrip("-").replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            faults.append(f"sbatch.{option}: not the long name of an sbatch option")
        elif name in _OWN_OPTIONS:
            faults.append(f"sbatch.{option}: set by relight itself; use {_OWN_OPTIONS[name]}")
    return faults


def _env_faults(env: dict[str, str]) -> list[str]:
    return [
        f"env.{name}: by its name this is a secret, and env is stored in the run folder; write "
        f"its value into a file and name that: secrets: {{{name}: {{file: ...}}}}"
        for name in env
        if _SECRET_ENDINGS.search(name)
    ]
