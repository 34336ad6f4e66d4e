"""What two runs had saved before one of them was restarted: their differences then are not its."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relight.storage.choose import newest_valid
from relight.storage.layout import step_dir

from .runs import StoredRun

if TYPE_CHECKING:
    from relight.storage.compare import Comparison
    from relight.storage.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint in a directory."""

    directory: Path
    manifest: Manifest


def newest_in(directory: Path) -> Place | None:
    """The newest valid checkpoint there, if there is one."""
    manifest = newest_valid(directory)
    return None if manifest is None else Place(directory, manifest)


def keep_beginning(run: StoredRun, step: int) -> None:
    """A second name for a checkpoint, which stays when the run deletes it."""
    here = step_dir(run.plan.config.checkpoint.directory, step)
    with suppress(OSError):  # it is just being deleted: then nothing is known of the beginning
        shutil.copytree(here, step_dir(_kept(run), step), copy_function=os.link)


def first_step(run: StoredRun) -> int:
    """The step that was kept of a run; 0 where that is no beginning, but near the end."""
    first = newest_in(_kept(run))
    last = newest_in(run.plan.config.checkpoint.directory)
    if first is None or last is None or 2 * first.manifest.step > last.manifest.step:
        return 0
    return first.manifest.step


def compared(one: Place, other: Place) -> Comparison:
    """As ``relight ckpt diff``."""
    from relight.storage.compare import Source, compare
    from relight.storage.shards import Shards

    with (
        Shards(one.directory, one.manifest) as ours,
        Shards(other.directory, other.manifest) as theirs,
    ):
        return compare(Source(one.manifest, ours), Source(other.manifest, theirs))


def without_old(
    found: Comparison, runs: Sequence[StoredRun], last: Sequence[Place]
) -> tuple[Comparison, tuple[str, ...]]:
    """``found`` between the last checkpoints without what neither run has changed since it began:
    that has differed since then, as generators do that nobody seeds or uses. These are the names.

    The second run is the one that was restarted, from what was kept of it.
    """
    firsts = [newest_in(_kept(run)) for run in runs]
    first, restarted = firsts
    if first is None or restarted is None:
        return found, ()
    steps = (first.manifest.step, restarted.manifest.step, last[0].manifest.step)
    if not steps[0] <= steps[1] < steps[2]:  # the first run may have changed it in between
        return found, ()
    arrays, values = set(), set()
    for early, late in ((first, last[0]), (restarted, last[1])):
        changed = compared(early, late)
        arrays |= {(one.key, one.rank) for one in changed.arrays}
        values |= set(changed.values)
    old = [one.key for one in found.arrays if (one.key, one.rank) not in arrays]
    old += [key for key in found.values if key not in values]
    return type(found)(
        tuple(one for one in found.arrays if (one.key, one.rank) in arrays),
        {key: both for key, both in found.values.items() if key in values},
    ), tuple(dict.fromkeys(old))


def _kept(run: StoredRun) -> Path:
    return run.folder.root / "beginning"
