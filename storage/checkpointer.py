"""The rank's side: saves one rank's state as a durable shard, and loads it back verified.

A receipt is a word that is never taken back: where a rank finds its own for this step and
incarnation, the save is done and that receipt is returned again. A shard without a receipt is what
a failed save left, and is written anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from . import content
from .commit import read_receipt
from .condition import examine, shard_fault
from .durable import fsync_dir, make_dirs, publish
from .errors import CheckpointDamaged as CheckpointDamaged
from .errors import SaveFailed as SaveFailed
from .errors import WorldChanged as WorldChanged
from .index import Index
from .layout import Incarnation, incarnation_dir, receipt_path, shard_file, shard_path, step_dir
from .manifest import Manifest
from .numpy_state import Buffer, in_pages
from .pack import unpack
from .read_shard import Damage, Shard
from .rebuild import rebuild
from .receipt import Receipt
from .state import Encoder
from .write_shard import Source, write_shard


def save_shard(
    directory: Path,
    step: int,
    incarnation: Incarnation,
    rank: int,
    world_size: int,
    state: Mapping[str, object],
) -> Receipt:
    """Writes a rank's state and its receipt; both are durable when this returns.

    Raises:
        StateRefused: a value cannot be stored exactly; nothing was written.
        SaveFailed: the file system refused; see its `errno` and `transient`.
    """
    started_s = time.monotonic()
    encoder = Encoder(state)
    source = Source(
        step=step,
        rank=rank,
        world_size=world_size,
        incarnation=incarnation,
        tree=encoder.tree,
        forms=encoder.forms,
        leaves=encoder.leaves,
    )
    return save_source(directory, source, started_s)


def save_source(directory: Path, source: Source, started_s: float) -> Receipt:
    """The part of `save_shard` that follows the encoding. Raises SaveFailed."""
    path = shard_path(directory, source.step, source.incarnation, source.rank)
    try:
        make_dirs(incarnation_dir(directory, source.step, source.incarnation))
        return _given(directory, source) or _save(directory, path, source, started_s)
    except OSError as error:
        raise SaveFailed(str(path), error) from error


def load_shard(
    directory: Path, manifest: Manifest, rank: int, world_size: int | None = None
) -> dict[str, object]:
    """A rank's state as it was saved; every block is checked while it is read.

    Tensors come back on the CPU. Raises CheckpointDamaged, WorldChanged, FormatUnknown.
    """
    if world_size not in (None, manifest.world_size):
        raise WorldChanged(manifest.world_size, f"{world_size} ranks")
    if not 0 <= rank < manifest.world_size:
        raise WorldChanged(manifest.world_size, f"rank {rank}")
    receipt = manifest.receipts[rank]
    path = step_dir(directory, manifest.step) / receipt.file
    with Shard(path, receipt) as shard:
        index = shard.index
        buffers = [in_pages(run.size_bytes) for run in index.runs()]
        shard.fill(buffer.data for buffer in buffers)
        try:
            return cast(dict[str, object], rebuild(index.tree, _arrays(index, buffers)))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"it cannot be understood: {error}"
            raise shard.damaged(Damage("index", None, reason)) from error


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


def _save(directory: Path, path: Path, source: Source, started_s: float) -> Receipt:
    receipt_file = receipt_path(directory, source.step, source.incarnation, source.rank)
    receipt_file.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    try:
        written = write_shard(path, source)
        fsync_dir(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
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
    )
    publish(receipt_file, receipt.to_json().encode("ascii"))
    return receipt


def _arrays(index: Index, buffers: Sequence[Buffer]) -> list[object]:
    *own, pack = buffers
    found = unpack(index, pack)
    for number, buffer in zip(index.own(), own, strict=True):
        found[number] = content.rebuild(index.forms[index.arrays[number]], buffer)
    return [found[number] for number in range(len(index.arrays))]
