"""Turns a complete set of shards into a checkpoint, by one link. No collective, any process may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from .condition import examine, incarnations, size_fault, steps
from .durable import fsync_dir, publish_new
from .epoch import check_holding, claims
from .epoch import claim_epoch as claim_epoch
from .errors import Fenced as Fenced
from .errors import ManifestDamaged, SaveIncomplete
from .layout import Incarnation, incarnation_dir, manifest_path, receipt_rank, step_dir
from .manifest import Manifest
from .receipt import Receipt
from .sealed import Json
from .set_aside import set_manifest_aside


def commit(
    directory: Path,
    step: int,
    incarnation: Incarnation,
    epoch: int,
    receipts: Iterable[Receipt],
    details: Mapping[str, Json],
) -> Manifest:
    """Makes a step valid and returns its manifest.

    A step that is committed already stays as it is and its manifest is returned, even if another
    incarnation wrote it; a damaged one is set aside first.

    Raises:
        SaveIncomplete: a rank is missing, doubled or foreign, or a shard lacks bytes.
        Fenced: a later epoch was claimed.
        OSError: the file system refused; nothing is committed.
    """
    manifest = _draft(step, incarnation, epoch, receipts, details)
    fault = size_fault(directory, manifest)
    if fault:
        raise SaveIncomplete(step, fault)
    for folder in (step_dir(directory, step), directory):
        fsync_dir(folder)  # a rank that made the step's folder may have died before its own fsync
    data = manifest.to_bytes()
    path = manifest_path(directory, step)
    while True:
        check_holding(directory, epoch)
        if publish_new(path, data):
            return Manifest.parse(data)
        existing = examine(directory, step)
        if existing.condition == "valid" and existing.manifest is not None:
            return existing.manifest
        if existing.condition == "damaged":
            _clear(directory, step, existing.reason)


def commit_complete(directory: Path, epoch: int) -> list[Manifest]:
    """Commits what an earlier attempt saved completely but did not live to commit, oldest first.

    The first duty of whoever has claimed the directory. Where several incarnations saved a step,
    the last one to have claimed it counts. A step without a manifest that is older than a valid one
    may be half deleted, or somebody may be about to delete the rest: it stays what it is.
    Raises Fenced, OSError.
    """
    held = claims(directory)
    committed = []
    for step in reversed(_to_commit(directory)):
        writers = incarnations(directory, step)
        for incarnation in sorted(writers, key=lambda one: held.get(one, 0), reverse=True):
            receipts = read_receipts(directory, step, incarnation)
            try:
                committed.append(commit(directory, step, incarnation, epoch, receipts, {}))
            except SaveIncomplete:
                continue
            break
    return committed


def _to_commit(directory: Path) -> list[int]:
    """Steps without a manifest that can be read, newest first."""
    found, seen_valid = [], False
    for step in steps(directory):
        one = examine(directory, step)
        seen_valid |= one.condition == "valid"
        if one.manifest is None and not (seen_valid and one.condition == "uncommitted"):
            found.append(step)
    return found


def read_receipts(directory: Path, step: int, incarnation: Incarnation) -> tuple[Receipt, ...]:
    """The readable receipts of one incarnation, by rank; a damaged one counts as not there."""
    folder = incarnation_dir(directory, step, incarnation)
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return ()
    found = []
    for name in names:
        rank = receipt_rank(name)
        receipt = read_receipt(folder / name) if rank is not None else None
        if receipt and (receipt.step, receipt.incarnation, receipt.rank) == (
            step,
            incarnation,
            rank,
        ):
            found.append(receipt)
    return tuple(sorted(found, key=lambda receipt: receipt.rank))


def read_receipt(path: Path) -> Receipt | None:
    """None when there is none, or none that can be trusted."""
    try:
        return Receipt.from_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _draft(
    step: int,
    incarnation: Incarnation,
    epoch: int,
    receipts: Iterable[Receipt],
    details: Mapping[str, Json],
) -> Manifest:
    ordered = tuple(sorted(receipts, key=lambda receipt: receipt.rank))
    if not ordered:
        raise SaveIncomplete(step, "there are no receipts")
    manifest = Manifest(
        step=step,
        incarnation=incarnation,
        epoch=epoch,
        world_size=ordered[0].world_size,
        receipts=ordered,
        created=datetime.now(UTC).isoformat(),
        details=details,
    )
    try:
        manifest.check()
    except ValueError as error:
        raise SaveIncomplete(step, str(error)) from error
    return manifest


def _clear(directory: Path, step: int, reason: str) -> None:
    """Moves a damaged manifest away, unless another committer has put a sound one there."""
    moved = set_manifest_aside(directory, step, reason)
    if moved is None:
        return
    try:
        data = moved.read_bytes()
        sound = not size_fault(directory, Manifest.parse(data))
    except (OSError, ManifestDamaged):
        return
    if sound:
        publish_new(manifest_path(directory, step), data)
