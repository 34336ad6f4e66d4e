"""The arrays of a checkpoint by their keys, wherever they lie, and their bytes in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from .blocks import BLOCK_BYTES
from .boxes import Box
from .errors import PartsUnfit
from .keys import Path as Key
from .keys import array_paths
from .leaf import Form
from .numpy_state import Buffer
from .parts import SavedPart, misfit
from .restore import assembled_bytes
from .shards import Shards

CHUNK_BYTES = 4 * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """One array.

    Attributes:
        key: under which it was saved.
        form: of the whole array.
        saved: where it lies; several places when it is in parts.
        rank: whose it is; None when it belongs to all ranks.
    """

    key: Key
    form: Form
    saved: tuple[SavedPart, ...]
    rank: int | None

    @property
    def name(self) -> str:
        return "/".join(self.key)

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return self.form.size_bytes // max(1, prod(self.form.shape))

    @property
    def in_parts(self) -> bool:
        return self.saved[0].form.global_shape is not None


def entries(shards: Shards, world_size: int) -> list[Entry]:
    """All arrays in the order of the states. Raises CheckpointDamaged, PartsUnfit."""
    found: dict[Key, dict[int, SavedPart]] = defaultdict(dict)
    borrowed = set()
    for rank in range(world_size):
        for key, node in array_paths(shards.index(rank).tree):
            holder, number = shards.holder(rank, key, node)
            found[key][rank] = SavedPart(holder, number, shards.form(holder, number))
            if "written_by" in node:
                borrowed.add(key)
    made = []
    for key, by_rank in found.items():
        if any(one.form.global_shape is not None for one in by_rank.values()):
            made.append(_of_parts(key, by_rank))
        elif key in borrowed:
            one = next(iter(by_rank.values()))
            made.append(Entry(key, one.form, (one,), None))
        else:
            made += [Entry(key, one.form, (one,), rank) for rank, one in by_rank.items()]
    return made


def read(shards: Shards, entry: Entry) -> Iterator[Buffer]:
    """Its bytes in C order, some megabytes at a time, verified. Raises CheckpointDamaged."""
    if entry.in_parts:
        for box in _slabs(entry):
            yield assembled_bytes(shards, list(entry.saved), box)
        return
    (one,) = entry.saved
    for start in range(0, entry.form.size_bytes, CHUNK_BYTES):
        stop = min(start + CHUNK_BYTES, entry.form.size_bytes)
        yield shards.bytes_of(one.rank, one.number, start, stop)


def _of_parts(key: Key, by_rank: dict[int, SavedPart]) -> Entry:
    # Replicas of one part have the same holder.
    parts = list({(one.rank, one.number): one for one in by_rank.values()}.values())
    reason = misfit(parts)
    if reason:
        raise PartsUnfit("/".join(key), reason)
    whole = parts[0].form.global_shape or ()
    width = max(one.form.size_bytes // max(1, one.box.volume) for one in parts)
    form = replace(
        parts[0].form, shape=whole, size_bytes=prod(whole) * width, global_shape=None, offset=()
    )
    return Entry(key, form, tuple(parts), None)


def _slabs(entry: Entry) -> Iterator[Box]:
    """Rows of the first axis, as many as make a chunk, at least one."""
    shape = entry.form.shape
    if not shape:
        yield Box((), ())
        return
    rows, *others = shape
    step = max(1, CHUNK_BYTES // max(1, entry.form.size_bytes // max(1, rows)))
    for first in range(0, rows if entry.form.size_bytes else 0, step):
        offset = (first, *(0 for _ in others))
        yield Box(offset, (min(step, rows - first), *others))
