"""Saved values put back into the containers and arrays that a program has made.

A program may hold on to what lies inside a container: ``params["w"]`` is its ``w`` too. Were that
replaced by a new array, the program would go on with the old one, and nobody would notice.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from relight.storage import numpy_state
from relight.storage.boxes import Part
from relight.storage.extents import Extent, folds, overlapping

from .sharded import is_dtensor

if TYPE_CHECKING:
    import torch

    Array = numpy_state.Array | torch.Tensor

_DICTS: Final = (dict, OrderedDict, defaultdict, Counter)


def refill(present: object, saved: object) -> object:
    """What is to stand in the place of ``present``: itself, as far as it can become ``saved``.

    Arrays of the same shape and dtype, dicts, lists, sets, deques and dataclasses are kept and
    filled. Immutable values, arrays of another size, and those that overlap come from ``saved``.
    What was one array when it was saved is one again, and what was two is two.
    """
    filling = _Refill(present)
    filling.fill(present, saved)
    return filling.value(present, saved)


class _Refill:
    def __init__(self, present: object) -> None:
        self._apart = _apart(present)
        self._taken: set[object] = set()  # what of the program's holds something saved already
        self._given: dict[int, object] = {}  # by the object that was saved

    def fill(self, present: object, saved: object) -> None:
        """Arrays first, wherever they stand: one may stand in something new, too."""
        array, new = _array(present), _array(saved)
        if array is not None and new is not None:
            if id(saved) not in self._given and self._overwrite(array, new):
                self._given[id(saved)] = present
        elif type(present) is type(saved):
            for one, other in _pairs(present, saved):
                self.fill(one, other)

    def value(self, present: object, saved: object) -> object:
        """With what was filled in the place of what was saved."""
        if _array(saved) is None and id(saved) not in self._given:
            self._given[id(saved)] = self._whole(present, saved)
        return self._given.get(id(saved), saved)

    def _overwrite(self, array: Array, new: Array) -> bool:
        extent = _extent(array)
        if not _fits(array, new) or extent not in self._apart or extent in self._taken:
            return False
        if extent != (0, 0):
            self._taken.add(extent)
        _copy(array, new)
        return True

    def _whole(self, present: object, saved: object) -> object:
        """A container: the program's own, or the one that was saved where it has none like it."""
        if type(present) is not type(saved) or id(present) in self._taken:
            present = saved
        self._taken.add(id(present))
        if type(saved) in _DICTS:
            old, new = cast("dict[object, object]", present), cast("dict[object, object]", saved)
            items = {key: self.value(old.get(key), value) for key, value in new.items()}
            old.clear()  # so that they stand in the order that was saved
            old.update(items)
            if isinstance(old, OrderedDict):  # torch keeps the versions of modules in an attribute
                vars(old).update(vars(new))
        elif isinstance(saved, tuple):
            members = self._members(cast("tuple[object]", present), saved)
            kept = all(one is other for one, other in zip(members, saved, strict=True))
            return saved if kept else tuple.__new__(type(saved), members)
        elif isinstance(saved, list) and isinstance(present, list):
            present[:] = self._members(present, saved)
        elif isinstance(saved, set) and isinstance(present, set):
            members = [*saved]
            present.clear()
            present.update(members)
        elif isinstance(saved, deque) and isinstance(present, deque):
            members = self._members(present, saved)
            present = present if present.maxlen == saved.maxlen else saved
            present.clear()
            present.extend(members)
        elif dataclasses.is_dataclass(saved) and not isinstance(saved, type):
            return self._dataclass(present, saved)
        else:
            return saved
        return present

    def _members(self, present: Sequence[object], saved: Sequence[object]) -> list[object]:
        return [
            self.value(one, other) for one, other in zip_longest(list(present)[: len(saved)], saved)
        ]

    def _dataclass(self, present: object, saved: object) -> object:
        frozen = getattr(type(saved), "__dataclass_params__").frozen  # noqa: B009  # of no known type
        result = saved if frozen else present
        for name in _fields(saved):
            member = self.value(getattr(present, name, None), getattr(saved, name))
            object.__setattr__(result, name, member)  # as when it was read, for frozen ones too
        return result


def _pairs(present: object, saved: object) -> Iterator[tuple[object, object]]:
    """What stands at the same place in two containers of a type."""
    if isinstance(present, dict) and isinstance(saved, dict):
        yield from ((present[key], saved[key]) for key in saved if key in present)
    elif isinstance(saved, list | tuple | deque):
        yield from zip(cast("Sequence[object]", present), saved, strict=False)
    elif dataclasses.is_dataclass(saved):
        yield from ((getattr(present, name, None), getattr(saved, name)) for name in _fields(saved))


def _fields(value: object) -> list[str]:
    return [field.name for field in dataclasses.fields(cast("type", value))]


def _apart(present: object) -> set[Extent]:
    """Memory of the arrays inside that none of them shares in part with another."""
    extents = {_extent(one) for one in _arrays(present)}
    groups = overlapping(extents, lambda extent: extent)
    return {group[0] for group in groups if len(group) == 1}


def _arrays(value: object) -> Iterator[Array]:
    array = _array(value)
    if array is not None:
        yield array
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _arrays(member)
    elif isinstance(value, list | tuple | deque):
        for member in value:
            yield from _arrays(member)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _arrays(getattr(value, field.name, None))


def _array(value: object) -> Array | None:
    """The array that stands here: of a part, and of a DTensor, what this rank has."""
    if isinstance(value, Part):
        value = value.array
    if isinstance(value, np.ndarray):
        return value
    if is_dtensor(value):
        value = getattr(value, "to_local")()  # noqa: B009  # of no known type
    if "torch" in sys.modules:
        import torch

        return value if isinstance(value, torch.Tensor) else None
    return None


def _extent(array: Array) -> Extent:
    if isinstance(array, np.ndarray):
        return numpy_state.extent(array)
    from relight.storage import torch_state

    return torch_state.extent(array) if _is_plain(array) else (0, 0)


def _fits(array: Array, saved: Array) -> bool:
    if isinstance(array, np.ndarray):
        same = isinstance(saved, np.ndarray) and array.dtype == saved.dtype
        writable = array.flags.writeable and not folds(array.shape, array.strides, array.itemsize)
        return same and array.shape == saved.shape and writable
    if isinstance(saved, np.ndarray) or array.dtype != saved.dtype or array.shape != saved.shape:
        return False
    return _is_plain(array) and _is_plain(saved) and not array.is_inference()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own that can be written."""
    import torch

    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        return False
    return not folds(tensor.shape, tensor.stride())


def _copy(array: Array, saved: Array) -> None:
    if isinstance(array, np.ndarray):
        np.copyto(array, cast("numpy_state.Array", saved))
        return
    import torch

    with torch.no_grad():
        array.copy_(cast("torch.Tensor", saved))
