"""Rules about the components of a heterogeneous job: what Slurm, or relight, cannot do (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from .spec_checks import NamedFaults, check_sbatch

if TYPE_CHECKING:
    from .spec import JobSpec, Resources

_WHERE = "resources.components"
# Of the whole job: a successor says them anew for all components.
_OF_THE_JOB = frozenset({"after", "dependency", "exclude"})


def check_sbatch_of_component(
    options: dict[str, str | Literal[True]],
) -> dict[str, str | Literal[True]]:
    try:
        check_sbatch(options)
    except NamedFaults as found:
        raise NamedFaults([f"{_WHERE}.{fault}" for fault in found.faults]) from found
    whole = [name for name in options if name.lstrip("-") in _OF_THE_JOB]
    if whole:
        raise NamedFaults(
            [
                f"{_WHERE}.sbatch.{name}: one for all components; write it below `sbatch:`"
                for name in whole
            ]
        )
    return options


def component_faults(resources: Resources) -> list[str]:
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
    """What does not go together with components."""
    faults = []
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
