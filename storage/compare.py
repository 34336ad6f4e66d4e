"""Two checkpoints, array by array: which values differ, and by how much. Streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, nan

import numpy as np

from .common import PART, differing, under
from .content import rebuild
from .entries import Entry, entries, read
from .keys import Path as Key
from .keys import replaced
from .leaf import Form
from .manifest import Manifest
from .numpy_state import Buffer
from .sealed import Json
from .shards import Shards

Advance = Callable[[int], None]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.inexact]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayDifference:
    """An array that is not bit for bit the same.

    Attributes:
        rank: whose it is; None when it belongs to all ranks.
        reason: why its values were not compared; empty when they were.
        elements, size: how many elements differ, of how many.
        max_abs, max_rel: the largest difference, and relative to the larger magnitude; NaN where
            no two finite numbers differ, infinite between an infinity and a number.
    """

    key: str
    rank: int | None
    reason: str = ""
    elements: int = 0
    size: int = 0
    max_abs: float = nan
    max_rel: float = nan


@dataclass(frozen=True, slots=True)
class Comparison:
    """`values` are the two plain values of each key under which they differ; None for none."""

    arrays: tuple[ArrayDifference, ...]
    values: Mapping[str, tuple[Json, Json]]

    @property
    def same(self) -> bool:
        return not self.arrays and not self.values


def compare(one: Source, other: Source, advance: Advance = lambda _: None) -> Comparison:
    """Compares two open checkpoints. `advance` is told of bytes that are done, of the first.

    Raises CheckpointDamaged, PartsUnfit.
    """
    return Comparison(tuple(_arrays(one, other, advance)), dict(_values(one, other)))


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint, open for reading."""

    manifest: Manifest
    shards: Shards

    def entries(self) -> dict[tuple[Key, int | None], Entry]:
        found = entries(self.shards, self.manifest.world_size)
        return {(entry.key, entry.rank): entry for entry in found}


def _arrays(one: Source, other: Source, advance: Advance) -> Iterator[ArrayDifference]:
    ours, theirs = one.entries(), other.entries()
    matched = set()
    for (key, rank), entry in ours.items():
        # What belongs to all ranks in one of them may have been that of each rank in the other.
        choices = [(key, rank), (key, None), *([(key, 0)] if rank is None else [])]
        at = next((at for at in choices if at in theirs), None)
        if at is None:
            yield ArrayDifference(key=entry.name, rank=rank, reason="only in the first")
        else:
            matched.add(at)
            found = _array(one.shards, entry, other.shards, theirs[at])
            if found is not None:
                yield found
        advance(entry.form.size_bytes)
    for at, entry in theirs.items():
        if at not in matched:
            yield ArrayDifference(key=entry.name, rank=entry.rank, reason="only in the second")


def _array(shards: Shards, one: Entry, others: Shards, other: Entry) -> ArrayDifference | None:
    if (one.form.kind, one.form.dtype, one.form.shape) != (
        other.form.kind,
        other.form.dtype,
        other.form.shape,
    ):
        forms = [f"{form.dtype} {list(form.shape)}" for form in (one.form, other.form)]
        return ArrayDifference(key=one.name, rank=one.rank, reason=" against ".join(forms))
    if _fingerprint(shards, one) == _fingerprint(others, other):
        return None
    elements, size, max_abs, max_rel = 0, 0, nan, nan
    for ours, theirs in zip(_rows(shards, one), _rows(others, other), strict=True):
        size += len(ours)
        apart = (ours != theirs).any(axis=1)
        if apart.any():
            elements += int(apart.sum())
            found = _distance(one.form, ours[apart], theirs[apart])
            max_abs, max_rel = np.fmax(max_abs, found[0]), np.fmax(max_rel, found[1])
    if not elements:
        return None
    return ArrayDifference(
        key=one.name,
        rank=one.rank,
        elements=elements,
        size=size,
        max_abs=float(max_abs),
        max_rel=float(max_rel),
    )


def _fingerprint(shards: Shards, entry: Entry) -> frozenset[object]:
    """Equal only for arrays of equal bytes, which need not be read then."""
    return frozenset((one.box, shards.fingerprint(one.rank, one.number)) for one in entry.saved)


def _rows(shards: Shards, entry: Entry) -> Iterator[Buffer]:
    """The bytes, one row for each element."""
    width = max(1, entry.width)
    return (data.reshape(-1, width) for data in read(shards, entry))


def _distance(form: Form, ours: Buffer, theirs: Buffer) -> tuple[float, float]:
    """The largest absolute and relative difference; NaN for what are no numbers."""
    one, other = (_numbers(form, data.reshape(-1)) for data in (ours, theirs))
    if one is None or other is None:
        return nan, nan
    with np.errstate(all="ignore"):
        absolute = np.abs(one - other)
        relative = absolute / np.maximum(np.abs(one), np.abs(other))
    relative[np.isinf(absolute)] = inf
    relative[absolute == 0] = 0  # a zero and a negative zero
    return _largest(absolute), _largest(relative)


def _largest(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else nan


def _numbers(form: Form, data: Buffer) -> Floats | None:
    """Elements as numbers that can be subtracted; None when they are none."""
    count = data.nbytes // max(1, form.size_bytes // max(1, int(np.prod(form.shape))))
    flat = rebuild(
        Form("numpy" if form.kind == "scalar" else form.kind, form.dtype, (count,), data.nbytes),
        data,
    )
    if form.kind == "torch":
        import torch

        assert isinstance(flat, torch.Tensor)
        wide = torch.complex128 if flat.is_complex() else torch.float64
        numbers: Floats = flat.to(wide).numpy()
        return numbers
    if not isinstance(flat, np.ndarray) or flat.dtype.kind not in "biufcmM":
        return None
    if flat.dtype.kind in "mM":
        flat = flat.view(np.int64)
    return flat.astype(np.result_type(flat.dtype, np.float64))


def _values(one: Source, other: Source) -> Iterator[tuple[str, tuple[Json, Json]]]:
    """Keys with their rank where the ranks are several."""
    ranks = [range(source.manifest.world_size) for source in (one, other)]
    for rank in min(ranks, key=len):
        plain, others = (_plain(source.shards.index(rank).tree) for source in (one, other))
        for key in differing(plain, others, ()):
            name = "/".join(key) + (f" (rank {rank})" if len(ranks[0]) > 1 else "")
            yield name, (under(plain, key), under(others, key))


def _plain(tree: Json) -> Json:
    """Without arrays, which are compared by themselves."""
    return replaced(tree, lambda _key, _node: PART)
