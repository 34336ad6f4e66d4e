"""Rules about groups of a spec's keys: options that relight sets itself, and secrets (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from relight.resilience.health.check import Limit

_SECRET: Final = re.compile(
    r"(^|_)(TOKEN|SECRETS?|(PG)?PASS(WORD|WD)?|CREDENTIALS?"
    r"|(API|ACCESS|AUTH|ENCRYPTION|PRIVATE|SECRET|SIGNING|SSH)_?KEY)$",
    re.IGNORECASE,
)
# sbatch options that relight sets itself, and where the spec says the same thing.
OWN_OPTIONS: Final = {
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
    "no-kill": "nothing: it is set, but with components",
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
    """Several faults found at once; each begins with the dotted path that it is about, within the
    value that was checked."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def check_sbatch(options: dict[str, str | Literal[True]]) -> dict[str, str | Literal[True]]:
    if faults := [*sbatch_faults(options, OWN_OPTIONS)]:
        raise NamedFaults(faults)
    return options


def sbatch_faults(options: Iterable[str], own: Mapping[str, str]) -> Iterator[str]:
    """What is no option of sbatch's, or one of relight's ``own``, with what to use instead."""
    for option in options:
        name = option.lstrip("-").replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            yield f"{option}: not the long name of an sbatch option"
        elif name in own:
            yield f"{option}: set by relight itself; use {own[name]}"


def check_env(env: dict[str, str]) -> dict[str, str]:
    faults = [
        f"{name}: by its name this is a secret, and env is stored in the run folder; write "
        f"its value into a file and name that: secrets: {{{name}: {{file: ...}}}}"
        for name in env
        if is_secret(name)
    ]
    if faults:
        raise NamedFaults(faults)
    return env


def check_checks(settings: object) -> object:
    """Checks and their limits are known by name; asks for their list only when one is named.
    ``null`` leaves one as it is."""
    if not isinstance(settings, Mapping) or not settings:
        return settings
    from relight.resilience.health.catalogue import ACTIVE, all_checks

    known = {check.name: check.limits for check in (*all_checks(), *ACTIVE)}
    given = {name: setting for name, setting in settings.items() if setting is not None}
    found = (_faults_of(name, setting, known) for name, setting in given.items())
    if faults := [*chain.from_iterable(found)]:
        raise NamedFaults(faults)
    return given


def _faults_of(
    name: object, setting: object, known: Mapping[str, Sequence[Limit]]
) -> Iterator[str]:
    dotted = str(name)
    limits = known.get(str(name))
    if limits is None:
        near = difflib.get_close_matches(str(name), known, n=1)
        meant = f"did you mean {near[0]!r}?" if near else "`relight preflight --list` names all"
        yield f"{dotted}: no such check; {meant}"
    elif isinstance(setting, Mapping):
        yield from _wrong_limits(dotted, setting, {limit.name: limit for limit in limits})
    elif setting is not False and setting != "off":
        such = "".join(f", or {{{limit.name}: {limit.default:g}}}" for limit in limits[:1])
        yield f"{dotted}: {setting!r} is not known; write off{such}"


def _wrong_limits(
    dotted: str, setting: Mapping[object, object], limits: Mapping[str, Limit]
) -> Iterator[str]:
    for name, value in setting.items():
        limit = limits.get(str(name))
        if limit is None:
            yield f"{dotted}.{name}: no limit of this check; it has {', '.join(limits) or 'none'}"
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{dotted}.{name}: {value!r} is not a number ({limit.unit})"
        elif not (0 <= value <= limit.most and isfinite(value)):
            most = "more" if limit.most == inf else f"at most {limit.most:g}"
            yield f"{dotted}.{name}: {value!r} makes no sense; write 0 or {most} ({limit.unit})"
