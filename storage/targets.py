"""Arrays that a program has already, into whose memory a restore may read what they are to hold.

Fresh memory costs more than all else in a restore, and a second copy of the state may not fit. So
what was saved of an array goes straight into it, where nothing else can be touched by that: all
arrays of the objects in question have the keys, dtypes and shapes that were saved, and to one saved
array belongs one memory, in which no other lies.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from . import numpy_state
from .boxes import Part
from .extents import Extent, overlapping
from .keys import Path as Key
from .keys import array_paths
from .leaf import Form
from .needs import spelled
from .numpy_state import Array, Buffer

if TYPE_CHECKING:
    import torch

    from .shards import Shards

Place = tuple[int, int]  # a rank, and the number of an array of its shard


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """An array of the program, and its bytes, in order."""

    array: object
    memory: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class _Present:
    """An array of the program: its form, where it lies, and its bytes if these lie in order."""

    array: object
    form: Form
    extent: Extent
    memory: Buffer | None


def fitting(into: Mapping[Key, object], shards: Shards, rank: int) -> dict[Place, Target]:
    """The saved arrays that can be read into the program's own.

    `into` are those by key, nested as in the state. None is written over when some are not as they
    were saved: the program is to hear of that first.
    """
    index = shards.index(rank)
    found = list(_arrays(into))
    if all(_size_bytes(array) < index.packed_below_bytes for _, _, array in found):
        return {}
    keys_of: dict[Place, list[Key]] = defaultdict(list)
    for key, node in array_paths(index.tree):
        keys_of[shards.holder(rank, key, node)].append(key)
    saved = [
        (key, shards.form(*place))
        for place, keys in keys_of.items()
        for key in keys
        if any(key[:length] in into for length in range(len(key) + 1))
    ]
    present = {key: _present(part, array) for key, part, array in found}
    forms = {key: one.form for key, one in present.items() if one is not None}
    if dict(saved) != forms or not len(saved) == len(found) == len(forms):
        return {}
    whole = _whole(cast("dict[Key, _Present]", present))
    return {
        place: whole[group]
        for place, keys in keys_of.items()
        if (group := frozenset(keys)) in whole
        and shards.form(*place).size_bytes >= index.packed_below_bytes
    }


def _whole(present: Mapping[Key, _Present]) -> dict[frozenset[Key], Target]:
    """Memory in which nothing lies but one array, by all keys of that."""
    found = {}
    for keys in overlapping(present, lambda key: present[key].extent):
        first = present[keys[0]]
        same = {(present[key].extent, present[key].memory is None) for key in keys}
        if same == {(first.extent, False)} and first.memory is not None:
            found[frozenset(keys)] = Target(first.array, first.memory)
    return found


def _arrays(into: Mapping[Key, object]) -> Iterator[tuple[Key, Part | None, Array | torch.Tensor]]:
    """Keys, the part that an array is of a larger one, and the array."""
    kinds: tuple[type, ...] = (np.ndarray,)
    if "torch" in sys.modules:
        from . import torch_state

        kinds = (np.ndarray, torch_state.Tensor)
    for root, value in into.items():
        yield from _nested(root, value, kinds)


def _nested(
    key: Key, value: object, kinds: tuple[type, ...]
) -> Iterator[tuple[Key, Part | None, Array | torch.Tensor]]:
    part = value if isinstance(value, Part) else None
    if part is not None:
        value = part.array
    if isinstance(value, kinds):
        yield key, part, cast("Array | torch.Tensor", value)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from _nested((*key, spelled(name)), member, kinds)
    elif isinstance(value, list | tuple):
        for place, member in enumerate(value):
            yield from _nested((*key, str(place)), member, kinds)


def _size_bytes(array: Array | torch.Tensor) -> int:
    if isinstance(array, np.ndarray):
        return array.nbytes
    return array.numel() * array.element_size()  # torch has no `nbytes` for sparse ones


def _present(part: Part | None, array: Array | torch.Tensor) -> _Present | None:
    """None for what could not be saved."""
    try:
        found = _of_numpy(array) if isinstance(array, np.ndarray) else _of_torch(array)
    except ValueError:
        return None
    if part is None:
        return found
    whole, offset = tuple(part.global_shape), tuple(part.offset)
    return replace(found, form=replace(found.form, global_shape=whole, offset=offset))


def _of_numpy(value: Array) -> _Present:
    form = numpy_state.form_of(value)
    return _Present(value, form, numpy_state.extent(value), numpy_state.memory(value))


def _of_torch(value: torch.Tensor) -> _Present:
    from . import torch_state

    form = torch_state.form_of(value)
    return _Present(value.detach(), form, torch_state.extent(value), torch_state.memory(value))
