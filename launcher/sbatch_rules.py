"""``#RELIGHT key: value`` lines of a batch script: the part of the spec that they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from relight.resilience.config import RestartConfig, RunConfig

from .launch_plan import Submitter
from .layers import Layer, Place, merged
from .plan import run_config
from .sbatch_script import Line
from .spec_faults import Fault
from .spec_file import build_spec
from .unread_secrets import unread_secrets
from .unread_xid_table import unread_xid_table
from .variables import substitute
from .yaml_lines import Path, YamlFault, read_yaml

# sbatch's options say the rest of a spec, or it has no meaning for a script.
_ALLOWED: Final = (
    "checkpoint",
    "env",
    "health",
    "notify",
    "restart",
    "resume",
    "run_dir",
    "secrets",
)
_DEFAULTS: Final = ("health", "notify")  # others would change what a script finds or means
_OF_CHECKPOINT: Final = ("done", "lead", "signal")  # the rest is for those who let us save
KEYS: Final = (
    *(f"checkpoint.{key}" for key in _OF_CHECKPOINT),
    *(key for key in _ALLOWED if key != "checkpoint"),
)


def config_of_lines(
    lines: Sequence[Line],
    source: str,
    restart: RestartConfig,
    submitter: Submitter,
    env: Mapping[str, str],
    defaults: Sequence[Layer] = (),
) -> RunConfig:
    """The configuration that ``lines`` ask for, with variables from ``env``; ``restart``, and what
    ``defaults`` say of health and notices, hold where they do not speak of it.

    Raises:
        SpecError: something in them is wrong, or a file of ``secrets`` is not there.
    """
    value: dict[str, object] = {
        "command": ["script"],
        "restart": _known_keys(restart),
    }
    places: dict[Path, Place] = {(): Place(source)}
    faults: list[Fault] = []
    for line in lines:
        try:
            for path, item in _leaves(line):
                _put(value, path, item)
                place = Place(source, line.number)
                places |= {path[: depth + 1]: place for depth in range(len(path))}
        except (YamlFault, ValueError) as fault:
            faults.append(Fault(Place(source, line.number), str(fault)))
    layer = merged([*map(_of_scripts, defaults), Layer(value, places)])
    layer = substitute(layer, env, submitter.run_id)
    faults += [*unread_secrets(layer), *unread_xid_table(layer)]
    spec = build_spec(layer.value, layer.places, faults)
    return run_config(spec, submitter)


def _of_scripts(defaults: Layer) -> Layer:
    kept = {key: defaults.value[key] for key in _DEFAULTS if key in defaults.value}
    return Layer(kept, defaults.places)


def _known_keys(restart: RestartConfig) -> dict[str, object]:
    return {
        "mode": restart.mode,
        "failures": restart.failures,
        "no_progress": restart.no_progress,
    }


def _leaves(line: Line) -> Iterable[tuple[tuple[str, ...], object]]:
    """What one line sets: ``restart.failures: 3`` and ``restart: {failures: 3}`` are the same."""
    value, _ = read_yaml(line.text)
    if not isinstance(value, dict):
        raise ValueError(f"{line.text!r} is not `key: value`, such as `restart.failures: 3`")
    for path, item in _flat(value, ()):
        if path[0] not in _ALLOWED:
            raise ValueError(
                f"{path[0]!r} cannot be given in a script; {', '.join(_ALLOWED)} can, and #SBATCH "
                "lines say the rest"
            )
        if path[0] == "checkpoint" and path[1:2] and path[1] not in _OF_CHECKPOINT:
            raise ValueError(
                f"{'.'.join(path)!r} has no meaning for a script, which saves by itself; "
                f"checkpoint.{', checkpoint.'.join(_OF_CHECKPOINT)} have"
            )
        yield path, item


def _flat(
    value: Mapping[str, object], before: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], object]]:
    for key, item in value.items():
        path = (*before, *key.split("."))
        if isinstance(item, dict):
            yield from _flat(item, path)
        else:
            yield path, item


def _put(value: dict[str, object], path: Sequence[str], item: object) -> None:
    for key in path[:-1]:
        inner = value.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{key!r} is given as a value and as a group")
        value = inner
    value[path[-1]] = item
