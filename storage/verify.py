"""Reads whole checkpoints again and names every damaged place. Needs neither numpy nor HDF5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .condition import Candidate, examine, steps
from .errors import CheckpointDamaged
from .layout import MANIFEST, step_dir
from .manifest import Manifest
from .parts import misfits
from .read_shard import Damage, Shard
from .receipt import Receipt


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged place. `file` is relative to the step's folder."""

    step: int
    file: str
    array: str
    block: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The committed steps that were read, newest first, and all that is wrong with them."""

    steps: tuple[int, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return not self.findings


def verify(directory: Path, step: int | None = None) -> Report:
    """Reads every byte of one committed step, or of all. Changes nothing.

    Raises FormatUnknown for a checkpoint of a later version.
    """
    wanted = steps(directory) if step is None else [step]
    found = [examine(directory, one) for one in wanted]
    committed = [one for one in found if one.condition != "uncommitted"]
    findings = [finding for one in committed for finding in _findings(directory, one)]
    return Report(tuple(one.step for one in committed), tuple(findings))


def verify_shard(directory: Path, step: int, rank: int) -> bool:
    """Whether one rank's shard of a committed step is whole; reads every byte of it.

    Raises FormatUnknown for a checkpoint of a later version.
    """
    manifest = examine(directory, step).manifest
    if manifest is None:
        return False
    shards = [receipt for receipt in manifest.receipts if receipt.rank == rank]
    found = (damage for one in shards for damage in _damages(directory, manifest, one))
    return bool(shards) and next(found, None) is None


def _findings(directory: Path, candidate: Candidate) -> Iterator[Finding]:
    manifest = candidate.manifest
    if manifest is None or manifest.step != candidate.step:
        yield Finding(candidate.step, MANIFEST, "manifest", None, candidate.reason)
        return
    for receipt in manifest.receipts:
        for damage in _damages(directory, manifest, receipt):
            yield Finding(candidate.step, receipt.file, damage.array, damage.block, damage.reason)
    for key, reason in _misfits(directory, manifest):
        yield Finding(candidate.step, MANIFEST, key, None, reason)


def _damages(directory: Path, manifest: Manifest, receipt: Receipt) -> Iterator[Damage]:
    try:
        with Shard(step_dir(directory, manifest.step) / receipt.file, receipt) as shard:
            yield from shard.damages()
            structure = shard.structure_damage()
            if structure is not None:
                yield structure
    except CheckpointDamaged as error:
        yield Damage(error.array, error.block, error.reason)


def _misfits(directory: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Arrays whose parts do not make a whole; damaged shards were named before."""
    indexes = {}
    for rank, receipt in enumerate(manifest.receipts):
        try:
            with Shard(step_dir(directory, manifest.step) / receipt.file, receipt) as shard:
                indexes[rank] = shard.index
        except CheckpointDamaged:
            return
    yield from misfits(indexes)
