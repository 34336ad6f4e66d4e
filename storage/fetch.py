"""Brings a checkpoint back from an archive, when it is better than what is in the directory."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from .archive import archived, code_key, code_of, manifest_of
from .condition import examine, steps
from .durable import fsync_dir, make_dirs, publish_new
from .epoch import check_holding
from .errors import CheckpointDamaged, ManifestDamaged, NoValidCheckpoint
from .layout import code_path, manifest_path, step_dir, step_name
from .manifest import Manifest
from .objects import Objects
from .read_shard import require_whole
from .set_aside import records, set_aside

_FETCHED: Final = ".fetched-"


def wanted(directory: Path) -> range | None:
    """Which steps of an archive would be better than the newest valid one here; None: it is best.

    Better is what was committed here, and is damaged or set aside as damaged; where nothing valid
    is left, any. A newer one that somebody has deleted stays deleted, and nothing comes back that
    the run has gone back behind.
    """
    lost, valid = [], -1
    for step in steps(directory):
        condition = examine(directory, step).condition
        if condition == "valid":
            valid = step
            break
        if condition == "damaged":
            lost.append(step)
    aside = records(directory)
    lost += [record.step for record in aside if not record.spoilt]
    spoilt = min(
        (one.step for one in aside if one.spoilt and one.step > valid), default=sys.maxsize
    )
    if valid < 0:
        return range(spoilt)
    found = range(valid + 1, min(max(lost, default=valid) + 1, spoilt))
    return found or None


def fetch(directory: Path, store: Objects, epoch: int) -> Manifest | None:
    """Brings the newest step that is wanted here back, whole and committed; None without any.

    Raises:
        NoValidCheckpoint: the archive has some, all are damaged, and nothing valid is here.
        Fenced: a later epoch was claimed.
        OSError: the directory does not work; and what the store raises.
    """
    steps_wanted = wanted(directory)
    if steps_wanted is None:
        return None
    for left in directory.glob(f"{_FETCHED}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    reasons = []
    for step in archived(store):
        if step not in steps_wanted:
            continue
        folder = directory / f"{_FETCHED}{epoch}"
        try:
            return _bring_back(directory, step, store, epoch, folder)
        except (CheckpointDamaged, ManifestDamaged, _Incomplete) as error:
            reasons.append(f"step {step} of the archive: {error}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if reasons and steps_wanted.start == 0:
        raise NoValidCheckpoint(str(directory), tuple(reasons))
    return None


class _Incomplete(Exception):
    """Something that a manifest of the archive lists is not there."""


def _bring_back(directory: Path, step: int, store: Objects, epoch: int, folder: Path) -> Manifest:
    """What is here of this step goes aside once its copy is here, and whole."""
    data = manifest_of(store, step)
    if data is None:
        raise _Incomplete("its manifest has just gone")
    manifest = Manifest.parse(data)
    if manifest.step != step:
        raise ManifestDamaged(f"it is that of step {manifest.step}")
    for receipt in manifest.receipts:
        for file in receipt.files:
            _download(store, f"{step_name(step)}/{file}", folder / file)
        require_whole(folder / receipt.file, receipt)
    _bring_code(directory, manifest, store)
    check_holding(directory, epoch)
    here, target = examine(directory, step), step_dir(directory, step)
    if here.condition == "damaged":
        set_aside(directory, step, here.reason)
    writer = manifest.incarnation.folder
    fsync_dir(folder / writer)
    shutil.rmtree(target / writer, ignore_errors=True)  # what a save that failed has left
    make_dirs(target)
    (folder / writer).rename(target / writer)
    fsync_dir(target)
    publish_new(manifest_path(directory, step), data)
    return manifest


def _bring_code(directory: Path, manifest: Manifest, store: Objects) -> None:
    """For people; the state does not need it."""
    for digest in code_of(manifest):
        with suppress(FileNotFoundError):
            text = store.read(code_key(digest))
            if sha256(text).hexdigest() == digest:
                make_dirs(code_path(directory, digest).parent)
                publish_new(code_path(directory, digest), text)


def _download(store: Objects, key: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        store.download(key, target)
    except FileNotFoundError as error:
        raise _Incomplete(f"{key} is not there") from error
    with target.open("rb") as file:
        os.fsync(file.fileno())
