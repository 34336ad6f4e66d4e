"""A sweep as job arrays, and what each of its tasks makes its own run from (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from relight.errors import UsageError

from .array_task import MARK, array_size, put_in
from .launch_plan import ArrayPart, LaunchPlan, Submitter
from .plan import plan
from .spec import JobSpec


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """``task`` is the plan of one task, with a mark where its number goes; ``arrays`` are sent."""

    points: Sequence[Mapping[str, str]]
    task: LaunchPlan
    arrays: tuple[tuple[str, LaunchPlan], ...]  # each with the name of its job


def sweep_plan(
    spec: JobSpec, waiting: JobSpec, submitter: Submitter, after: tuple[str, ...], most: int
) -> SweepPlan:
    """The plan for a spec with a sweep; ``waiting`` is the spec with what the arrays depend on.

    ``most`` is how many tasks an array may have.
    """
    points = spec.sweep or []
    size = array_size(len(points), ceil(len(points) / most))
    parts = [
        ArrayPart(first=first, count=min(size, len(points) - first), at_once=spec.at_once)
        for first in range(0, len(points), size)
    ]
    arrays = tuple(
        (part.name(submitter.run_id), plan(waiting, submitter, "slurm", part).after(after))
        for part in parts
    )
    return SweepPlan(points, _task(spec, submitter, arrays[0][1]).after(after), arrays)


def one_point(spec: JobSpec) -> JobSpec:
    """The spec of the only point of its sweep; one without a sweep as it is.

    Raises:
        UsageError: there are several points.
    """
    if spec.sweep is None:
        return spec
    point, *others = spec.sweep
    if others:
        words = ", ".join(f"{name}: {value}" for name, value in point.items())
        raise UsageError(
            "sweep: runs without Slurm have no arrays; one point is run by "
            f"--set 'sweep=[{{{words}}}]'"
        )
    directory = spec.checkpoint.directory
    checkpoint = spec.checkpoint.model_copy(
        update={"directory": None if directory is None else put_in(directory, point)}
    )
    own: dict[str, object] = {
        "command": [put_in(word, point) for word in spec.command],
        "resume": None if spec.resume is None else [put_in(word, point) for word in spec.resume],
        "env": {name: put_in(value, point) for name, value in spec.env.items()},
        "checkpoint": checkpoint,
        "sweep": None,
    }
    return spec.model_copy(update=own)


def _task(spec: JobSpec, submitter: Submitter, array: LaunchPlan) -> LaunchPlan:
    """A run of its own in a folder of its own; its script is sent when it goes on elsewhere."""
    directory = spec.checkpoint.directory
    if directory is not None and not _differs(directory, spec.sweep or []):  # one for each run
        directory = f"{directory}/{MARK}"
    archive = spec.checkpoint.archive
    if archive is not None:
        archive = archive.model_copy(update={"url": f"{archive.url.rstrip('/')}/{MARK}"})
    places = {"directory": directory, "archive": archive}
    own: dict[str, object] = {
        "checkpoint": spec.checkpoint.model_copy(update=places),
        "run_dir": str(array.folder.root / "tasks" / MARK),
        "working_dir": str(array.config.working_dir),
    }
    named = replace(submitter, run_id=f"{submitter.run_id}_{MARK}", tree=None)
    return plan(spec.model_copy(update=own), named, "slurm")


def _differs(directory: str, points: Sequence[Mapping[str, str]]) -> bool:
    found = {Path(put_in(directory, point)) for point in points}
    return "${sweep." in directory and len(found) == len(points)
