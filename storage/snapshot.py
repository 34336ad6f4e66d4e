"""A state at one moment, in a staging area: what its program does afterwards cannot change it.

Large arrays lie there first, each from a page on, so that they can go to the disk from where they
are. The small ones follow, those of one form side by side, and then what the writer has to know, as
JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from . import content
from .blocks import BLOCK_BYTES, PAGE_BYTES, in_parallel
from .garbage import no_search
from .layout import Incarnation
from .leaf import Form, Leaf
from .notes import Notes
from .numpy_state import Buffer
from .sealed import Json, field
from .staging import Staging
from .write_shard import Source

if TYPE_CHECKING:
    import torch

_LARGE_BYTES = 1 << 16
_MOST_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to save, and when that was asked for (of the system's monotonic clock)."""

    source: Source
    started_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where in the staging area the order lies, which knows all the rest."""

    at: int
    size_bytes: int


class _Piece(NamedTuple):
    at: int
    leaf: Leaf
    start: int
    stop: int


def need_bytes(forms: Sequence[Form], leaves: Sequence[Leaf]) -> int:
    """What the arrays of a state take in a staging area."""
    return _places(forms, leaves)[1]


def take(staging: Staging, order: Order, later: Container[int] = ()) -> Snapshot:
    """Copies all values. The staging area must not hold another one that is still wanted.

    Large arrays whose numbers are in `later` are left to `take_rest`. Raises OSError.
    """
    source = order.source
    places, end = _places(source.forms, source.leaves)
    text = _to_bytes(order, places)
    memory = staging.memory(end + len(text))
    pin_for_gpus(staging, source.leaves)
    numbers = [number for number in range(len(places)) if number not in later]
    _copy(memory, source, places, numbers)
    for at, form, leaves in _groups(source, places):
        data = content.gather(form, leaves)
        memory[at : at + len(data)] = np.frombuffer(data, np.uint8)
    memory[end : end + len(text)] = np.frombuffer(text, np.uint8)
    return Snapshot(end, len(text))


def pin_for_gpus(staging: Staging, leaves: Iterable[Leaf]) -> None:
    """Pins the memory that there is, when arrays are to come from a GPU."""
    for leaf in leaves:
        if content.is_on_gpu(leaf.value):
            staging.pin(cast("torch.Tensor", leaf.value).device)
            return


def take_rest(staging: Staging, order: Order, later: Iterable[int]) -> None:
    """Copies the large arrays that `take` has left."""
    places, end = _places(order.source.forms, order.source.leaves)
    _copy(staging.memory(end), order.source, places, later)


@no_search()
def read(staging: Staging, snapshot: Snapshot) -> Order:
    """The order; its arrays are views of the staging area."""
    end = snapshot.at + snapshot.size_bytes
    memory = staging.memory(end)
    return _from_bytes(memory[snapshot.at : end].tobytes(), memory)


def _places(forms: Sequence[Form], leaves: Sequence[Leaf]) -> tuple[list[int], int]:
    """Where each array lies, and where the last one ends."""
    places, end = [0] * len(leaves), 0
    for number, leaf in enumerate(leaves):
        size_bytes = forms[leaf.form].size_bytes
        if size_bytes >= _LARGE_BYTES:
            places[number] = end
            end += -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
    for number in _small(forms, leaves):
        places[number] = end
        end += forms[leaves[number].form].size_bytes
    return places, end


def _small(forms: Sequence[Form], leaves: Sequence[Leaf]) -> list[int]:
    """The numbers of the small arrays, by form."""
    sizes = [form.size_bytes for form in forms]
    numbers = [number for number, leaf in enumerate(leaves) if 0 < sizes[leaf.form] < _LARGE_BYTES]
    return sorted(numbers, key=lambda number: leaves[number].form)


def _copy(memory: Buffer, source: Source, places: Sequence[int], numbers: Iterable[int]) -> None:
    """Large ones, in several threads: numpy and torch let them run."""

    on_gpus: list[_Piece] = []
    on_host: list[_Piece] = []
    for piece in _pieces(source, places, numbers):
        (on_gpus if content.is_on_gpu(piece.leaf.value) else on_host).append(piece)

    def copy(piece: _Piece) -> None:
        at, leaf, start, stop = piece
        data = content.piece(source.forms[leaf.form], leaf.value, start, stop)
        memory[at + start : at + stop] = np.frombuffer(data, np.uint8)

    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with _from_gpus(memory, on_gpus):
        for _ in in_parallel(copy, on_host, threads):
            pass


def _from_gpus(memory: Buffer, pieces: list[_Piece]) -> AbstractContextManager[None]:
    if not pieces:
        return nullcontext()
    from . import gpu_copy

    return gpu_copy.copying(
        memory,
        (
            gpu_copy.GpuPiece(at, cast("torch.Tensor", leaf.value), start, stop)
            for at, leaf, start, stop in pieces
        ),
    )


def _pieces(source: Source, places: Sequence[int], numbers: Iterable[int]) -> Iterator[_Piece]:
    for at, leaf in ((places[number], source.leaves[number]) for number in numbers):
        size_bytes = source.forms[leaf.form].size_bytes
        if size_bytes >= _LARGE_BYTES:
            for start in range(0, size_bytes, BLOCK_BYTES):
                yield _Piece(at, leaf, start, min(start + BLOCK_BYTES, size_bytes))


def _groups(source: Source, places: Sequence[int]) -> Iterator[tuple[int, Form, list[Leaf]]]:
    forms, leaves = source.forms, source.leaves
    for form, group in groupby(_small(forms, leaves), key=lambda number: leaves[number].form):
        numbers = list(group)
        yield places[numbers[0]], forms[form], [leaves[number] for number in numbers]


def _to_bytes(order: Order, places: Sequence[int]) -> bytes:
    source = order.source
    body: dict[str, Json] = {
        "started_s": order.started_s,
        "step": source.step,
        "rank": source.rank,
        "world_size": source.world_size,
        "incarnation": source.incarnation.folder,
        "tree": source.tree,
        "forms": [_from_form(form) for form in source.forms],
        "leaves": [leaf.form for leaf in source.leaves],
        "borrows": list(source.borrows),
        "shares_digest": source.shares_digest,
        "reuse": source.reuse,
        "metrics": dict(source.notes.metrics),
        "provenance": dict(source.notes.provenance),
        "places": list(places),
    }
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


def _from_bytes(text: bytes, memory: Buffer) -> Order:
    body = cast(dict[str, Json], json.loads(text))
    forms = [_to_form(cast(list[Json], form)) for form in field(body, "forms", list)]
    places = cast(list[int], field(body, "places", list))
    numbers = cast(list[int], field(body, "leaves", list))
    source = Source(
        step=field(body, "step", int),
        rank=field(body, "rank", int),
        world_size=field(body, "world_size", int),
        incarnation=Incarnation.parse(field(body, "incarnation", str)),
        tree=body["tree"],
        forms=forms,
        leaves=[
            Leaf(number, memory[at : at + forms[number].size_bytes].data)
            for number, at in zip(numbers, places, strict=True)
        ],
        borrows=cast(list[int], field(body, "borrows", list)),
        shares_digest=field(body, "shares_digest", str),
        reuse=field(body, "reuse", int),
        notes=Notes(
            metrics=field(body, "metrics", dict), provenance=field(body, "provenance", dict)
        ),
    )
    return Order(
        source=source,
        started_s=field(body, "started_s", float),
    )


def _from_form(form: Form) -> Json:
    whole: Json = None if form.global_shape is None else list(form.global_shape)
    return [form.kind, form.dtype, form.size_bytes, list(form.shape), whole, list(form.offset)]


def _to_form(parts: list[Json]) -> Form:
    kind, dtype, size_bytes, shape, whole, offset = parts
    return Form(
        kind=cast(str, kind),
        dtype=cast(str, dtype),
        shape=tuple(cast(list[int], shape)),
        size_bytes=cast(int, size_bytes),
        global_shape=None if whole is None else tuple(cast(list[int], whole)),
        offset=tuple(cast(list[int], offset)),
    )
