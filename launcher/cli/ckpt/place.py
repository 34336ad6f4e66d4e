"""The checkpoints that a word on the command line means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import UsageError
from relight.storage.choose import newest_valid
from relight.storage.condition import examine
from relight.storage.layout import step_of
from relight.storage.manifest import Manifest
from relight.storage.retention import Keep

from ...runs import find_one_run

_AT_STEP: Final = re.compile(r"(?P<place>.+)@(?P<step>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One committed checkpoint."""

    directory: Path
    manifest: Manifest


def checkpoint_directory(place: str) -> Path:
    """The checkpoints of a run, or a directory that holds some itself.

    Raises:
        UsageError: it is neither, or one checkpoint of them, or a batch script, which says itself
            where its programs save.
    """
    if _is_directory_alone(place):
        return Path(place)
    if not Path(place).is_dir() and (one := _AT_STEP.fullmatch(place)):
        raise UsageError(
            f"{place!r} is one checkpoint, and RUN|DIR is wanted, without @STEP; `relight ckpt "
            f"show {place}` tells of one, `relight ckpt verify {one['place']} --step {one['step']}`"
            " reads it"
        )
    config = find_one_run(place).plan.config
    if config.program == "script":
        raise UsageError(
            f"{place} is a batch script, which says itself where its programs save: "
            "name that folder (RELIGHT_CHECKPOINT_DIR of programs with relight.join)"
        )
    directory = config.checkpoint.directory
    if not directory.is_dir():
        raise UsageError(f"{directory} is not there: the run has saved nothing yet")
    return directory


def keep_rule(place: str) -> Keep | None:
    """What a run keeps; a directory has no rule of its own."""
    return None if _is_directory_alone(place) else find_one_run(place).plan.config.checkpoint.keep


def _is_directory_alone(place: str) -> bool:
    """Whether it is one of checkpoints, and no run folder."""
    return Path(place).is_dir() and not (Path(place) / "plan.json").exists()


def chosen_checkpoint(word: str) -> Chosen:
    """The checkpoint of ``RUN|DIR``, ``RUN|DIR@STEP`` or of a step's own folder.

    Raises:
        UsageError: there is none, or it is damaged.
        NoValidCheckpoint: none of several is valid.
    """
    match = _AT_STEP.fullmatch(word)
    path = Path(word).absolute()
    step = step_of(path.name)
    if step is not None and path.is_dir():
        return _at(path.parent, step)
    if match is not None and not path.is_dir():
        return _at(checkpoint_directory(match["place"]), int(match["step"]))
    directory = checkpoint_directory(word)
    newest = newest_valid(directory)
    if newest is None:
        raise UsageError(f"{directory} holds no committed checkpoint")
    return Chosen(directory, newest)


def _at(directory: Path, step: int) -> Chosen:
    found = examine(directory, step)
    if found.condition != "valid" or found.manifest is None:
        reason = found.reason or "nothing is committed there"
        raise UsageError(f"step {step} in {directory} is {found.condition}: {reason}")
    return Chosen(directory, found.manifest)
