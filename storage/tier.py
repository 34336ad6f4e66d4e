"""A tier on the node itself, in memory or on a disk of its own, that shards are written to first.

It has the layout of a checkpoint directory without manifests: what is committed, the checkpoint
directory alone says. A copy here counts where it is the shard that such a manifest lists, and its
bytes are verified as any others are.

<tier>/relight-<run id>/<node>/<step>/<attempt>.g<generation>/shard-<rank>.h5, receipt-<rank>.json
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from .errors import SaveFailed
from .layout import Incarnation, step_dir, step_of

if TYPE_CHECKING:  # agents use this too, which know neither
    from .manifest import Manifest
    from .receipt import Receipt

_KEPT: Final = 2  # the newest that is committed, and the one that is being drained
_MORE_TRIES: Final = 2

T = TypeVar("T")


def room_bytes(folder: Path, rank: int, share_bytes: int) -> int:
    """What a rank may still write: its share of the tier, or what is free there. Raises OSError."""
    there = os.statvfs(folder)
    used = sum(size_bytes for _, size_bytes in _shards(folder, rank))
    return min(there.f_bavail * there.f_frsize, share_bytes - used)


def in_spite_of_removals(write: Callable[[], T]) -> T:
    """What `write` gives. Another rank may just `remove` the folder, which is empty yet."""
    for _ in range(_MORE_TRIES):
        try:
            return write()
        except (SaveFailed, OSError) as error:
            if error.errno != errno.ENOENT:
                raise
    return write()


def drop(folder: Path, receipt: Receipt) -> None:
    """Removes one copy."""
    remove(step_dir(folder, receipt.step) / receipt.file)


def drop_unfinished(folder: Path, receipt: Receipt) -> None:
    """Removes what connections have brought of one copy that is not whole."""
    shard = step_dir(folder, receipt.step) / receipt.file
    for path in _inside(shard.parent):
        if path.name.startswith(f"{shard.name}."):
            path.unlink(missing_ok=True)


def drop_older(folder: Path, receipt: Receipt) -> None:
    """Removes a rank's copies of steps that two newer ones of it have made needless."""
    shards = (path for path, _ in _shards(folder, receipt.rank))
    done = [(step_of(path.parts[-3]) or 0, path) for path in shards]
    steps = sorted({step for step, _ in done if step <= receipt.step}, reverse=True)
    for step, path in done:
        if step in steps[_KEPT:]:
            remove(path)


def drop_overtaken(folder: Path, step: int) -> None:
    """Removes what ranks have left that save here no more: a checkpoint of this step is there.

    They have moved to another node, or found no room.
    """
    shards = [(step_of(path.parts[-3]) or 0, path) for path, _ in _shards(folder)]
    used = {path.name for one, path in shards if one >= step}
    for one, path in shards:
        if one < step and path.name not in used:
            remove(path)


def drop_foreign(folder: Path, manifest: Manifest | None, live: Incarnation) -> None:
    """Removes what neither a checkpoint lists nor the incarnation that runs now has written."""
    receipts = manifest.receipts if manifest is not None else ()
    listed = {step_dir(folder, one.step) / one.file for one in receipts}
    for path, _ in _shards(folder):
        if path not in listed and path.parent.name != live.folder:
            remove(path)


def _shards(folder: Path, rank: int | None = None) -> Iterator[tuple[Path, int]]:
    """Shards with their sizes, of one rank or of all; others may be removing some meanwhile.

    Also what is being received of one, or was: a name that goes on behind that of the shard.
    """
    name = "shard-*.h5*" if rank is None else f"shard-{rank:05d}.h5*"
    for step in _inside(folder):
        for writer in _inside(step):
            for path in _inside(writer):
                if fnmatch(path.name, name):
                    with suppress(FileNotFoundError):
                        yield path, path.stat().st_size


def _inside(folder: Path) -> list[Path]:
    # Not by glob: that of Python 3.11 raises when a folder goes while it is looked into.
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove(shard: Path) -> None:
    """One file, with its receipt, and the folders that are empty then."""
    shard.unlink(missing_ok=True)
    receipt = shard.name.replace("shard-", "receipt-").replace(".h5", ".json")
    shard.with_name(receipt).unlink(missing_ok=True)
    with suppress(OSError):  # other ranks have something in it
        shard.parent.rmdir()
        shard.parent.parent.rmdir()
