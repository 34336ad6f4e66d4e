"""Deletes checkpoints that are no longer kept, and what failed saves have left behind."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .choose import candidates
from .code_diffs import unnamed
from .condition import Candidate, incarnations
from .durable import fsync_dir
from .epoch import check_holding
from .errors import DeletionRefused
from .layout import Incarnation, incarnation_dir, manifest_path, step_dir
from .retention import Committed, Keep, to_delete
from .set_aside import records


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a call of `prune` removed: steps, and paths of uncommitted folders."""

    steps: tuple[int, ...]
    leftovers: tuple[Path, ...]


def prune(
    directory: Path, keep: Keep, epoch: int, live: Incarnation, doubted: int | None = None
) -> Pruned:
    """Called after a commit, by whoever holds `epoch`; `live` is the incarnation now running.

    Checkpoints from `doubted` on may turn out to be spoilt: the newest before them stays.

    The newest valid checkpoint, damaged ones, everything newer than the newest valid one and what
    `live` may be writing, which is newer than its own newest checkpoint, are never touched. Safe to
    interrupt at any point and to call again. Raises Fenced, OSError.
    """
    check_holding(directory, epoch)
    found = candidates(directory)
    valid = committed(found)
    newest = max((one.step for one in valid), default=None)
    sound = max(
        (one.step for one in valid if doubted is not None and one.step < doubted), default=-1
    )
    deleted = tuple(step for step in to_delete(valid, newest, keep) if step != sound)
    for step in deleted:
        check_holding(directory, epoch)  # it takes its time, and somebody may go on meanwhile
        _delete_step(directory, step)
    if newest is None:
        return Pruned((), ())
    rest = [one for one in found if one.step <= newest and one.step not in deleted]
    own = (one.step for one in found if one.manifest and one.manifest.incarnation == live)
    written = max(own, default=-1)  # its ranks save one step after the other
    leftovers = [
        path
        for one in rest
        for path in _leftovers(directory, one, live if one.step >= written else None)
    ]
    for path in leftovers:
        check_holding(directory, epoch)
        _remove(path)
        with suppress(OSError):  # other incarnations may still be in there
            path.parent.rmdir()
    before = next((one for one in found if one.step < newest and one.condition == "valid"), None)
    if before is not None:
        _delete_late_copies(directory, before)
    _delete_diffs(directory, [one for one in found if one.step not in deleted])
    return Pruned(deleted, tuple(leftovers))


def deletable(directory: Path, keep: Keep) -> tuple[int, ...]:
    """The committed steps that `keep` does not name, oldest first."""
    valid = committed(candidates(directory))
    return to_delete(valid, max((one.step for one in valid), default=None), keep)


def delete(directory: Path, steps: Collection[int]) -> None:
    """Deletes committed steps; a run may go on meanwhile. Raises DeletionRefused, OSError."""
    require_deletable(directory, steps)
    for step in sorted(steps):
        _delete_step(directory, step)


def require_deletable(directory: Path, steps: Collection[int]) -> None:
    """Raises DeletionRefused when one is the newest valid one, newer, or not committed."""
    found = {one.step: one for one in candidates(directory)}
    newest = max((one.step for one in committed(found.values())), default=-1)
    for step in steps:
        if step not in found or found[step].condition == "uncommitted":
            raise DeletionRefused(f"step {step} is not committed: there is nothing to delete")
        if step >= newest:
            raise DeletionRefused(
                f"step {step} stays: only checkpoints older than the newest valid one "
                f"({newest if newest >= 0 else 'there is none'}) are deleted"
            )


def committed(found: Iterable[Candidate]) -> list[Committed]:
    """The valid ones, as retention sees them."""
    return [
        Committed(step=one.step, created_s=one.manifest.created_s, metrics=one.manifest.metrics)
        for one in found
        if one.condition == "valid" and one.manifest is not None
    ]


def _delete_step(directory: Path, step: int) -> None:
    # The manifest goes first and for good: a half deleted step must never look committed.
    manifest_path(directory, step).unlink(missing_ok=True)
    fsync_dir(step_dir(directory, step))
    _remove(step_dir(directory, step))
    fsync_dir(directory)


def _delete_diffs(directory: Path, found: Iterable[Candidate]) -> None:
    """Only where every checkpoint can say which one it needs."""
    stay = list(found)
    if records(directory) or any(one.condition == "damaged" for one in stay):
        return
    for path in unnamed(directory, [one.manifest for one in stay if one.manifest is not None]):
        path.unlink(missing_ok=True)


def _delete_late_copies(directory: Path, candidate: Candidate) -> None:
    """Of nodes that were held for lost, and copied what was there already, to their real end.

    Each step is looked at while it is the last but one: large folders are slow to list.
    """
    assert candidate.manifest is not None
    folder = incarnation_dir(directory, candidate.step, candidate.manifest.incarnation)
    for path in folder.glob(".shard-*"):
        path.unlink(missing_ok=True)


def _leftovers(directory: Path, candidate: Candidate, live: Incarnation | None) -> list[Path]:
    if candidate.condition == "damaged":
        return []
    kept = {live, candidate.manifest.incarnation if candidate.manifest is not None else None}
    return [
        incarnation_dir(directory, candidate.step, incarnation)
        for incarnation in incarnations(directory, candidate.step)
        if incarnation not in kept
    ]


def _remove(folder: Path) -> None:
    # NFS keeps files that a dying process has open as .nfs*: what stays is for the next call.
    shutil.rmtree(folder, ignore_errors=True)
