"""Rules about groups of a spec's keys: options that relight sets itself, and secrets (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeVar

_SECRET: Final = re.compile(
    r"(^|_)(TOKEN|SECRETS?|(PG)?PASS(WORD|WD)?|CREDENTIALS?"
    r"|(API|ACCESS|AUTH|ENCRYPTION|PRIVATE|SECRET|SIGNING|SSH)_?KEY)$",
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
    "time-min": "resources.time_min",
    "partition": "resources.partition",
    "signal": "checkpoint.lead",
    "chdir": "working_dir",
    "output": "run_dir",
    "error": "run_dir",
    "requeue": "restart.mode",
    "no-requeue": "restart.mode",
    "no-kill": "nothing: it is always set",
    "open-mode": "nothing: it is always append",
    "array": "sweep",
    "wrap": "command",
    "parsable": "nothing",
    "test-only": "relight plan",
}


def is_secret(name: str) -> bool:
    """Whether an environment variable of this name holds what nobody else may see."""
    return _SECRET.search(name) is not None


class NamedFaults(ValueError):
    """Several faults found at once; each begins with the dotted path that it is about."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def check_sbatch(options: dict[str, str | Literal[True]]) -> dict[str, str | Literal[True]]:
    faults = []
    for option in options:
        name = option.lstrip("-").replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            faults.append(f"sbatch.{option}: not the long name of an sbatch option")
        elif name in _OWN_OPTIONS:
            faults.append(f"sbatch.{option}: set by relight itself; use {_OWN_OPTIONS[name]}")
    if faults:
        raise NamedFaults(faults)
    return options


def check_env(env: dict[str, str]) -> dict[str, str]:
    faults = [
        f"env.{name}: by its name this is a secret, and env is stored in the run folder; write "
        f"its value into a file and name that: secrets: {{{name}: {{file: ...}}}}"
        for name in env
        if is_secret(name)
    ]
    if faults:
        raise NamedFaults(faults)
    return env


CheckSettings = TypeVar("CheckSettings", bound=Mapping[str, object])


def check_checks(settings: CheckSettings) -> CheckSettings:
    """Checks and their limits are known by name; asks for their list only when one is named."""
    if not settings:
        return settings
    from relight.resilience.health.catalogue import all_checks

    known = {check.name: [limit.name for limit in check.limits] for check in all_checks()}
    faults = []
    for name, setting in settings.items():
        if name not in known:
            faults.append(f"health.checks.{name}: no such check; `relight preflight --list`")
        elif isinstance(setting, Mapping):
            faults += [
                f"health.checks.{name}.{limit}: no limit of this check; it has "
                f"{', '.join(known[name]) or 'none'}"
                for limit in setting
                if limit not in known[name]
            ]
    if faults:
        raise NamedFaults(faults)
    return settings
