"""The way back: a tree and its arrays as the Python state that was saved."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from . import plain, registered
from .sealed import Json


def rebuild(tree: Json, arrays: Sequence[object]) -> object:
    """Raises ValueError, KeyError or TypeError for a tree that no encoder made."""
    return _Rebuilding(arrays).value(tree)


class _Rebuilding:
    def __init__(self, arrays: Sequence[object]) -> None:
        self._arrays = arrays
        self._composed: dict[str, object] = {}  # by their parts: of the same ones they are tied

    def value(self, tree: Json) -> object:
        if isinstance(tree, list):
            return [self.value(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((name, content),) = tree.items()
        if name == "array":
            return self._arrays[cast(int, content)]
        if name in _ATOMS:
            return _ATOMS[name](cast(str, content))
        if name in _WRAPPED:
            return _WRAPPED[name](self.value(content))
        if name in _COMPOSED:
            parts = json.dumps(tree)
            if parts not in self._composed:
                members = cast("dict[str, object]", self.value(content))
                self._composed[parts] = _COMPOSED[name](members)
            return self._composed[parts]
        if name in ("enum", "dataclass", "namedtuple"):
            kind, fields = cast(list[Json], content)
            return registered.put_together(name, cast(str, kind), self.value(fields))
        return self._container(name, content)

    def _container(self, name: str, content: Json) -> object:
        if name == "dict":
            return {key: self.value(item) for key, item in cast(dict[str, Json], content).items()}
        if name == "items":
            return dict(self._pairs(content))
        if name == "defaultdict":
            factory, items = cast(list[Json], content)
            return defaultdict(plain.FACTORIES[cast(str, factory)], self._pairs(items))
        if name == "counter":
            return Counter(cast("dict[object, int]", dict(self._pairs(content))))
        if name == "deque":
            items, most = cast(list[Json], content)
            return deque(cast(list[object], self.value(items)), cast("int | None", most))
        if name == "ordered":
            items, attributes = cast(list[Json], content)
            ordered = OrderedDict(self._pairs(items))
            vars(ordered).update(cast(dict[str, object], self.value(attributes)))
            return ordered
        return _SEQUENCES[name](self.value(item) for item in cast(list[Json], content))

    def _pairs(self, items: Json) -> Iterator[tuple[object, object]]:
        for key, item in cast(list[list[Json]], items):
            yield self.value(key), self.value(item)


def _size(content: list[int]) -> object:
    from . import torch_state

    return torch_state.Size(content)


def _sparse(content: dict[str, object]) -> object:
    from . import torch_composed

    return torch_composed.sparse(content)


def _quantised(content: dict[str, object]) -> object:
    from . import torch_composed

    return torch_composed.quantised(content)


_ATOMS: dict[str, Callable[[str], object]] = {
    "int": plain.decode_int,
    "float": plain.decode_float,
    "complex": plain.decode_complex,
    "str": plain.decode_str,
    "bytes": plain.decode_bytes,
}
_WRAPPED: dict[str, Callable[..., object]] = {
    "numpy.str": np.str_,
    "numpy.bytes": np.bytes_,
    "bytearray": bytearray,
    "torch.Size": _size,
}
_COMPOSED: dict[str, Callable[[dict[str, object]], object]] = {
    "sparse": _sparse,
    "quantised": _quantised,
}
_SEQUENCES: dict[str, Callable[[Iterator[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
