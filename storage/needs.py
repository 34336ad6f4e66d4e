"""What a program needs of a checkpoint beyond what its rank has saved itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .boxes import Box, Part, Shape
from .errors import StateRefused
from .keys import NoText
from .keys import Path as Key


class Piece(NamedTuple):
    """A region, and the shape of the whole array."""

    box: Box
    whole: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """By the keys of the state.

    Attributes:
        pieces: what this rank is to hold of arrays that lie in parts.
        any_rank: where the value of any rank will do, though they may differ.
        per_rank: what each rank has for itself where ranks differ, as random numbers.
        own: what each rank has for itself in any case.
        into: arrays that the program has, nested as in the state, whose memory may be written over;
            it is worth nothing when the restore fails. See `targets`.
    """

    pieces: Mapping[Key, Piece]
    any_rank: frozenset[Key] = frozenset()
    per_rank: frozenset[Key] = frozenset()
    own: frozenset[Key] = frozenset()
    into: Mapping[Key, object] = field(default_factory=dict)


def pieces_of(state: object) -> dict[Key, Piece]:
    """The parts in a state as it is now, before it is restored. Raises StateRefused."""
    return dict(_pieces(state, ()))


def _pieces(value: object, key: Key) -> Iterator[tuple[Key, Piece]]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from _pieces(member, (*key, spelled(name)))
    elif isinstance(value, list | tuple):
        for place, member in enumerate(value):
            yield from _pieces(member, (*key, str(place)))
    elif (part := _part(value, key)) is not None:
        shape = tuple(getattr(part.array, "shape", ()))
        yield key, Piece(Box(tuple(part.offset), shape), tuple(part.global_shape))


def _part(value: object, key: Key) -> Part | None:
    if isinstance(value, Part):
        return value
    if "torch.distributed.tensor" not in sys.modules:
        return None
    from . import torch_distributed

    try:
        return torch_distributed.part_of(value) if torch_distributed.is_dtensor(value) else None
    except ValueError as error:
        raise StateRefused("/".join(key), str(error)) from error


def spelled(name: object) -> str:
    """As in `keys.part_of_path`, for the keys that trees spell as JSON does."""
    if isinstance(name, str):
        return name
    return NoText(json.dumps(name) if isinstance(name, int | float | None) else repr(name))
