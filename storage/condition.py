"""What lies in one step folder: nothing committed, a valid checkpoint, or a damaged one."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .errors import ManifestDamaged
from .layout import Incarnation, manifest_path, step_dir, step_of
from .manifest import Manifest
from .receipt import Receipt

# What this process lacks says nothing of what is there: an older checkpoint would be taken for it.
OUR_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

Condition = Literal["valid", "damaged", "uncommitted"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One step folder. `manifest` is there when it could be read, `reason` when it is damaged.

    `unanswered`: the file system did not say what is there; in a moment it may.
    """

    step: int
    condition: Condition
    reason: str = ""
    manifest: Manifest | None = None
    unanswered: bool = False


def steps(directory: Path) -> list[int]:
    """The steps that have a folder, newest first; anything else in the directory is ignored."""
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted((step for name in names if (step := step_of(name)) is not None), reverse=True)


def incarnations(directory: Path, step: int) -> list[Incarnation]:
    """The incarnations that wrote to a step."""
    found = []
    try:
        folders = [path for path in step_dir(directory, step).iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    for folder in folders:
        with suppress(ValueError):
            found.append(Incarnation.parse(folder.name))
    return sorted(found)


def examine(directory: Path, step: int) -> Candidate:
    """Judges a step by its manifest and the sizes of its shards; their bytes are not read.

    Raises FormatUnknown for a checkpoint of a later version, OSError where this process can open no
    file.
    """
    try:
        manifest = Manifest.parse(manifest_path(directory, step).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return Candidate(step, "uncommitted")
    except ManifestDamaged as error:
        return Candidate(step, "damaged", f"its manifest is damaged: {error.reason}")
    except OSError as error:
        if error.errno in OUR_OWN:
            raise
        reason = f"its manifest cannot be read: {error.strerror}"
        return Candidate(step, "damaged", reason, unanswered=True)
    if manifest.step != step:
        reason = f"its manifest is that of step {manifest.step}"
        return Candidate(step, "damaged", reason, manifest)
    folder = step_dir(directory, step)
    fault = next(filter(None, (_fault(folder, one) for one in manifest.receipts)), None)
    if fault is not None:
        return Candidate(step, "damaged", fault.reason, manifest, fault.unanswered)
    return Candidate(step, "valid", manifest=manifest)


def size_fault(directory: Path, manifest: Manifest) -> str:
    """Says which shard is missing or has another size than listed, empty when none."""
    folder = step_dir(directory, manifest.step)
    return next(filter(None, (shard_fault(folder, one) for one in manifest.receipts)), "")


def shard_fault(folder: Path, receipt: Receipt) -> str:
    """Says why a receipt's shard cannot be the one that was saved, empty when it may be."""
    fault = _fault(folder, receipt)
    return fault.reason if fault is not None else ""


class _Fault(NamedTuple):
    reason: str
    unanswered: bool


def _fault(folder: Path, receipt: Receipt) -> _Fault | None:
    for file, size_bytes in receipt.files.items():
        try:
            found = (folder / file).stat().st_size
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
            return _Fault(f"{file} cannot be read: {error.strerror}", not absent)
        if found != size_bytes:
            return _Fault(f"{file} has {found} bytes, {size_bytes} were saved", unanswered=False)
    return None
