"""The receipt of a copy that another node has made of the same shard, out of the copy itself.

That node may be lost, and its receipt with it. Its copy may be of other bytes: more or less of it
is shared or compressed, or by another version of a library. What counts is that it is whole, and
that its values are those of the shard.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py

from . import blocks
from .condense import receipt_of_copy
from .container import Extent
from .errors import CheckpointDamaged
from .kept import bases
from .read_shard import Damage, Shard, require_whole
from .receipt import Receipt
from .write_shard import Written


def receipt_of(copy: Path, source: Path, receipt: Receipt) -> Receipt:
    """Reads every byte of the copy, and what it shares; `receipt` is that of `source`.

    Raises CheckpointDamaged.
    """
    found = _described(copy, receipt)
    with Shard(source, receipt) as saved, Shard(copy, found) as shard:
        if _values(shard) != _values(saved):
            raise shard.damaged(Damage("index", None, f"its values are not those of {source}"))
        there = bases(shard.index.kept.values())
    found = replace(found, bases=_sizes(copy, there)) if there else found
    require_whole(copy, found)
    return found


def _described(copy: Path, receipt: Receipt) -> Receipt:
    """Where index and digests are in it, and what they are now."""
    try:
        with h5py.File(copy, "r", locking=False) as file:
            index, digests = (_extent(file[name].id) for name in ("index", "digests"))
        with copy.open("rb") as opened:
            pair = [
                blocks.read_exactly(opened.fileno(), one.at, one.size_bytes)
                for one in (index, digests)
            ]
        size_bytes = copy.stat().st_size
    # TypeError: a dataset that has no place
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(str(copy), "file", None, f"it cannot be read: {error}") from error
    digest = blocks.digest(*pair).hex()
    if digest == receipt.digest:
        return receipt
    return receipt_of_copy(
        receipt, Written(size_bytes=size_bytes, digest=digest, index=index, digests=digests)
    )


def _extent(dataset: h5py.h5d.DatasetID) -> Extent:
    return Extent(int(dataset.get_offset()), int(dataset.get_storage_size()))


def _values(shard: Shard) -> tuple[bytes, list[list[bytes]]]:
    """The same for all shards of one state, wherever in a file it is."""
    index = replace(shard.index, at=(), pack_at=0, kept={}, chunked={})
    return index.to_bytes(), [shard.digests_of(run) for run in shard.index.runs()]


def _sizes(copy: Path, names: list[str]) -> dict[str, int]:
    try:
        return {base: copy.with_name(base).stat().st_size for base in names}
    except OSError as error:
        raise CheckpointDamaged(str(copy), "file", None, f"it cannot be read: {error}") from error
