"""Keys of a spec that do not go together, though each is right by itself (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .spec_components import faults_of_components
from .spec_starters import faults_of_starters

if TYPE_CHECKING:
    from .spec import JobSpec


def faults_together(spec: JobSpec) -> Iterator[str]:
    """Each begins with the dotted path that it is about."""
    checkpoint = spec.checkpoint
    yield from faults_of_starters(spec)
    if spec.after and any(name.lstrip("-") == "dependency" for name in spec.sbatch):
        yield "after: sbatch.dependency is given too; name its jobs here, or leave this out"
    if spec.resources.components:
        yield from faults_of_components(spec)
    if checkpoint.compress and checkpoint.tiers is None:
        yield (
            "checkpoint.compress: shards are compressed while they are copied from a tier, and "
            "there is no checkpoint.tiers: name one, such as checkpoint.tiers.node=/dev/shm, "
            "or leave this out"
        )
    archive, directory = checkpoint.archive, checkpoint.directory
    if archive is not None and directory is not None and archive.url == f"file://{directory}":
        yield "checkpoint.archive.url: that is checkpoint.directory; it has to be another place"
    limit_s, lead_s = spec.resources.least_time_s, checkpoint.lead
    if limit_s is not None and lead_s is not None and lead_s > limit_s / 2:
        yield (
            f"checkpoint.lead: {lead_s:g} s is more than half of the shortest attempt "
            f"({limit_s:g} s), so the run would stop before it has done anything"
        )
