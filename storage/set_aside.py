"""Damaged checkpoints are moved out of the way with the reason; they are never deleted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from .durable import fsync_dir, make_dirs, publish
from .layout import MANIFEST, manifest_path, set_aside_dir, step_dir, step_name
from .sealed import Json, field, seal, unseal

_REASON = "reason.json"
_CONTENT = "checkpoint"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record of the set-aside folder. `path` holds what was moved there.

    `spoilt`: its bytes are right and its values are not, so that no copy of it is better.
    `committed`: it was a checkpoint, and not only what some ranks had saved of one.
    """

    step: int
    reason: str
    created: str
    path: Path
    spoilt: bool = False

    @property
    def committed(self) -> bool:
        return self.path.name == MANIFEST or os.path.lexists(self.path / MANIFEST)


def set_aside(directory: Path, step: int, reason: str, *, spoilt: bool = False) -> None:
    """Takes a checkpoint out of the choice; its step may then be saved and committed anew.

    Doing it twice is harmless: the second finds nothing to move. Raises OSError.
    """
    source = step_dir(directory, step)
    _move(directory, step, reason, source, _CONTENT, spoilt=spoilt)


def set_manifest_aside(directory: Path, step: int, reason: str) -> Path | None:
    """Moves only the commit record, and says where it is now; the shards stay."""
    return _move(directory, step, reason, manifest_path(directory, step), MANIFEST)


def records(directory: Path) -> list[SetAside]:
    """Everything that was set aside, oldest step first; unreadable reasons say so."""
    root = set_aside_dir(directory)
    if not root.is_dir():
        return []
    return [record for folder in sorted(root.iterdir()) if (record := _read(folder))]


def _move(
    directory: Path, step: int, reason: str, source: Path, name: str, *, spoilt: bool = False
) -> Path | None:
    folder = _new_folder(set_aside_dir(directory), step)
    # The reason comes first: a crash in between leaves a record of nothing, and the next look at
    # the checkpoint sets it aside again.
    created = datetime.now(UTC).isoformat()
    body: dict[str, Json] = {"step": step, "reason": reason, "created": created}
    body |= {"spoilt": True} if spoilt else {}
    publish(folder / _REASON, seal(body))
    try:
        source.rename(folder / name)
    except FileNotFoundError:
        (folder / _REASON).unlink()
        folder.rmdir()
        return None
    for changed in (folder, source.parent):
        fsync_dir(changed)
    return folder / name


def _new_folder(root: Path, step: int) -> Path:
    make_dirs(root)
    for number in count(1):
        folder = root / f"{step_name(step)}.{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        fsync_dir(root)
        return folder
    raise AssertionError("count() does not end")


def _read(folder: Path) -> SetAside | None:
    kept = [folder / name for name in (_CONTENT, MANIFEST) if os.path.lexists(folder / name)]
    if not kept:
        return None
    step = int(folder.name.partition(".")[0])
    try:
        body = unseal((folder / _REASON).read_bytes())
        reason, created = field(body, "reason", str), field(body, "created", str)
        return SetAside(step, reason, created, kept[0], spoilt=body.get("spoilt") is True)
    except (OSError, ValueError):
        return SetAside(step, "the reason cannot be read", "", kept[0])
