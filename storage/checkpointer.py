"""The rank's side: saves one rank's state as a durable shard, and loads it back verified.

A receipt is a word that is never taken back: where a rank finds its own for this step and
incarnation, the save is done and that receipt is returned again. A shard without a receipt is what
a failed save left, and is written anew.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .commit import read_receipt
from .condition import examine, shard_fault
from .durable import fsync_dir, make_dirs, publish
from .errors import CheckpointDamaged as CheckpointDamaged
from .errors import SaveFailed as SaveFailed
from .errors import WorldChanged as WorldChanged
from .garbage import no_search
from .kept import bases
from .layout import Incarnation, incarnation_dir, receipt_path, shard_file, shard_path
from .leaf import Leaf
from .lustre import stripe
from .notes import Notes
from .progress import Progress, unseen
from .receipt import Receipt
from .restore import load_shard as load_shard
from .restore import load_state as load_state
from .reuse import unchanged
from .state import Encoder
from .write_shard import Source, write_shard


def save_shard(
    directory: Path,
    step: int,
    incarnation: Incarnation,
    rank: int,
    world_size: int,
    state: Mapping[str, object],
    notes: Notes = Notes(),  # noqa: B008  # frozen, and nobody changes what is in it
    reuse: int = 0,
) -> Receipt:
    """Writes a rank's state and its receipt; both are durable when this returns.

    `notes` are for the receipt only. Arrays that are as in the newest committed step before may be
    left there, for `reuse` saves in a row.

    Raises:
        StateRefused: a value cannot be stored exactly; nothing was written.
        SaveFailed: the file system refused; see its `errno` and `transient`.
    """
    started_s = time.monotonic()
    source = source_of(step, incarnation, rank, world_size, state, notes, reuse)
    return save_source(directory, source, started_s)


@no_search()
def source_of(
    step: int,
    incarnation: Incarnation,
    rank: int,
    world_size: int,
    state: Mapping[str, object],
    notes: Notes,
    reuse: int = 0,
) -> Source:
    """A rank's state, ready to be written. Raises StateRefused."""
    encoder = Encoder(state, rank, world_size)
    arrays = encoder.arrays
    _await_gpus(arrays.leaves)
    return Source(
        step=step,
        rank=rank,
        world_size=world_size,
        incarnation=incarnation,
        tree=encoder.tree,
        forms=arrays.forms,
        leaves=arrays.leaves,
        borrows=sorted(arrays.borrows),
        shares_digest=arrays.shares_digest,
        notes=notes,
        reuse=reuse,
    )


def _await_gpus(leaves: Sequence[Leaf]) -> None:
    """Other threads copy, and their streams do not wait for that of the program."""
    if "torch" not in sys.modules:
        return
    import torch

    tensors = (leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor))
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.synchronize(device)


def save_source(
    directory: Path, source: Source, started_s: float, shown: Progress = unseen
) -> Receipt:
    """The part of `save_shard` that follows the encoding. Raises SaveFailed."""
    path = shard_path(directory, source.step, source.incarnation, source.rank)
    try:
        make_dirs(incarnation_dir(directory, source.step, source.incarnation), directory.parent)
        return _given(directory, source) or _save(directory, path, source, started_s, shown)
    except OSError as error:
        raise SaveFailed(str(path), error) from error
    except MemoryError as error:
        lacking = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        raise SaveFailed(str(path), lacking) from error


def _given(directory: Path, source: Source) -> Receipt | None:
    """The receipt of an earlier save of the same shard, when that shard is there."""
    folder = incarnation_dir(directory, source.step, source.incarnation)
    mine = (source.step, source.incarnation, source.world_size, source.rank)
    for receipt in _known_receipts(directory, source):
        named = (receipt.step, receipt.incarnation, receipt.world_size, receipt.rank)
        if named == mine and not shard_fault(folder.parent, receipt):
            fsync_dir(folder)
            return receipt
    return None


def _known_receipts(directory: Path, source: Source) -> Iterator[Receipt]:
    own = read_receipt(receipt_path(directory, source.step, source.incarnation, source.rank))
    if own is not None:
        yield own
    manifest = examine(directory, source.step).manifest
    if manifest is not None and source.rank < manifest.world_size:
        yield manifest.receipts[source.rank]


def _save(
    directory: Path, path: Path, source: Source, started_s: float, shown: Progress
) -> Receipt:
    receipt_file = receipt_path(directory, source.step, source.incarnation, source.rank)
    receipt_file.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    stripe(path.parent, source.world_size, source.payload_bytes)
    there = unchanged(path.parent, source)
    names = bases(one.kept for one in there.values())
    try:
        written = write_shard(path, source, there, shown)
        fsync_dir(path.parent)
    except BaseException:
        for file in (path, *map(path.with_name, names)):
            file.unlink(missing_ok=True)
        raise
    receipt = Receipt(
        step=source.step,
        rank=source.rank,
        world_size=source.world_size,
        incarnation=source.incarnation,
        file=shard_file(source.incarnation, source.rank),
        size_bytes=written.size_bytes,
        digest=written.digest,
        payload_bytes=source.payload_bytes,
        seconds=time.monotonic() - started_s,
        index_at=written.index.at,
        index_bytes=written.index.size_bytes,
        digests_at=written.digests.at,
        digests_bytes=written.digests.size_bytes,
        shares_digest=source.shares_digest,
        notes=source.notes,
        bases={base: path.with_name(base).stat().st_size for base in names},
    )
    publish(receipt_file, receipt.to_json().encode("ascii"))
    return receipt
