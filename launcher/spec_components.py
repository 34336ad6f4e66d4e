"""Rules about the components of a heterogeneous job: what Slurm, or relight, cannot do (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from .spec_checks import OWN_OPTIONS, NamedFaults, sbatch_faults

if TYPE_CHECKING:
    from .spec import JobSpec, Resources

_WHERE = "resources.components"
# Of the whole job: a successor says them anew for all components.
_OF_THE_JOB = frozenset({"after", "dependency", "exclude"})
_OF_EACH = (
    *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem", "partition"),
)
_OWN_OPTIONS = {
    **OWN_OPTIONS,
    **{option: OWN_OPTIONS[option].replace("resources", _WHERE) for option in _OF_EACH},
    "no-kill": "nothing: Slurm would end the other components, which never start again",
    "array": "nothing: Slurm has no arrays of heterogeneous jobs",
}


def check_sbatch_of_component(
    options: dict[str, str | Literal[True]],
) -> dict[str, str | Literal[True]]:
    whole = [
        f"{name}: one for all components; write it below `sbatch:`"
        for name in options
        if name.lstrip("-") in _OF_THE_JOB
    ]
    if faults := [*sbatch_faults(options, _OWN_OPTIONS), *whole]:
        raise NamedFaults(faults)
    return options


def _of_themselves(resources: Resources) -> list[str]:
    """What is wrong with the components by themselves."""
    faults = [
        f"resources.{name}: components say how many nodes they have; leave this out, and write "
        f"`{name}: null` where a file with defaults says it"
        for name in ("nodes", "spares")
        if name in resources.model_fields_set
    ]
    names = [one.name for one in resources.components]
    faults += [
        f"{_WHERE}: two are called {name!r}, and programs know them by their names"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if len(names) == 1:
        faults.append(f"{_WHERE}: one alone is no component; write its keys into resources itself")
    with_memory = [one.name for one in resources.whole_components if one.memory is not None]
    if 0 < len(with_memory) < len(names):
        faults.append(
            f"{_WHERE}: {', '.join(with_memory)} says its memory, so all have to: Slurm would give "
            "the same to the others"
        )
    return faults


def faults_of_components(spec: JobSpec) -> list[str]:
    """What does not go together in components, and with them."""
    faults = _of_themselves(spec.resources)
    if spec.sweep is not None:
        faults.append(
            "sweep: Slurm has no arrays of heterogeneous jobs; leave it or components out"
        )
    commands: Sequence[str] = [one.name for one in spec.resources.components if one.command]
    if spec.resume is not None and commands:
        faults.append(
            f"resume: {', '.join(commands)} runs a command of its own, which has to see by itself "
            "whether it goes on; leave resume out, and let the others do so too"
        )
    return faults
