"""Reads whole checkpoints again and names every damaged place. Needs neither numpy nor HDF5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .condition import Candidate, examine, steps
from .errors import CheckpointDamaged, ManifestDamaged, PartsUnfit
from .layout import MANIFEST, manifest_path, step_dir
from .manifest import Manifest
from .parts import misfits
from .read_shard import Damage, Shard
from .receipt import Receipt

Advance = Callable[[int], None]


def _nobody(size_bytes: int) -> None:
    """Nobody is looking at the progress."""


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


def verify(
    directory: Path,
    step: int | None = None,
    *,
    restore: bool = False,
    advance: Advance = _nobody,
) -> Report:
    """Reads every byte of one committed step, or of all. Changes nothing.

    With `restore` also loads the state of each rank, one after the other, as a run would. `advance`
    is told of bytes that are done, of those that `size_bytes` counts: once for each of the two.

    Raises FormatUnknown for a checkpoint of a later version, TypeNotRegistered when a restore needs
    types that only the program knows.
    """
    committed = _committed(directory, step)
    findings = [
        finding
        for one in committed
        for finding in dict.fromkeys(_findings(directory, one, restore=restore, advance=advance))
    ]
    return Report(tuple(one.step for one in committed), tuple(findings))


def size_bytes(directory: Path, step: int | None = None) -> int:
    """The bytes of values that `verify` reads."""
    manifests = (one.manifest for one in _committed(directory, step))
    return sum(manifest.payload_bytes for manifest in manifests if manifest is not None)


def _committed(directory: Path, step: int | None) -> list[Candidate]:
    wanted = steps(directory) if step is None else [step]
    found = (examine(directory, one) for one in wanted)
    return [one for one in found if one.condition != "uncommitted"]


def verify_shard(directory: Path, step: int, file: str | None) -> bool:
    """Whether a step is committed, and one of its shards is whole; reads every byte of that.

    `file` is as in `Finding`; with None, or one that is no longer listed, only the manifest counts.

    Raises FormatUnknown for a checkpoint of a later version, OSError when the manifest is there and
    cannot be read.
    """
    try:
        manifest = Manifest.parse(manifest_path(directory, step).read_bytes())
    except (FileNotFoundError, ManifestDamaged):
        return False
    shards = [receipt for receipt in manifest.receipts if receipt.file == file]
    found = (damage for one in shards for damage in _damages(directory, manifest, one, _nobody))
    return next(found, None) is None


def _findings(
    directory: Path, candidate: Candidate, *, restore: bool, advance: Advance
) -> Iterator[Finding]:
    manifest = candidate.manifest
    if manifest is None or manifest.step != candidate.step:
        yield Finding(candidate.step, MANIFEST, "manifest", None, candidate.reason)
        return
    for receipt in manifest.receipts:
        for damage in _damages(directory, manifest, receipt, advance):
            yield Finding(candidate.step, receipt.file, damage.array, damage.block, damage.reason)
    for key, reason in _misfits(directory, manifest):
        yield Finding(candidate.step, MANIFEST, key, None, reason)
    if restore:
        yield from _failures(directory, manifest, advance)


def _failures(directory: Path, manifest: Manifest, advance: Advance) -> Iterator[Finding]:
    """What keeps a rank from loading its state."""
    from .restore import load_shard

    for rank, receipt in enumerate(manifest.receipts):
        try:
            load_shard(directory, manifest, rank)
        except CheckpointDamaged as error:
            yield Finding(manifest.step, receipt.file, error.array, error.block, error.reason)
        except PartsUnfit as error:
            yield Finding(manifest.step, receipt.file, error.key, None, error.reason)
        advance(receipt.payload_bytes)


def _damages(
    directory: Path, manifest: Manifest, receipt: Receipt, advance: Advance
) -> Iterator[Damage]:
    try:
        with Shard(step_dir(directory, manifest.step) / receipt.file, receipt) as shard:
            yield from shard.damages(advance)
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
