"""The way back: a tree and its arrays as the Python state that was saved."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from . import plain, registered
from .sealed import Json


def rebuild(tree: Json, arrays: Sequence[object]) -> object:
    """Raises ValueError, KeyError or TypeError for a tree that no encoder made."""
    if isinstance(tree, list):
        return [rebuild(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((name, content),) = tree.items()
    if name == "array":
        return arrays[cast(int, content)]
    if name in _ATOMS:
        return _ATOMS[name](cast(str, content))
    if name in _WRAPPED:
        return _WRAPPED[name](rebuild(content, arrays))
    if name in ("enum", "dataclass", "namedtuple"):
        kind, fields = cast(list[Json], content)
        return registered.put_together(name, cast(str, kind), rebuild(fields, arrays))
    return _container(name, content, arrays)


def _container(name: str, content: Json, arrays: Sequence[object]) -> object:
    if name == "dict":
        return {key: rebuild(item, arrays) for key, item in cast(dict[str, Json], content).items()}
    if name == "items":
        return dict(_pairs(content, arrays))
    if name == "defaultdict":
        factory, items = cast(list[Json], content)
        return defaultdict(plain.FACTORIES[cast(str, factory)], _pairs(items, arrays))
    if name == "counter":
        return Counter(cast("dict[object, int]", dict(_pairs(content, arrays))))
    if name == "deque":
        items, most = cast(list[Json], content)
        return deque(cast(list[object], rebuild(items, arrays)), cast("int | None", most))
    if name == "ordered":
        items, attributes = cast(list[Json], content)
        ordered = OrderedDict(_pairs(items, arrays))
        vars(ordered).update(cast(dict[str, object], rebuild(attributes, arrays)))
        return ordered
    return _SEQUENCES[name](rebuild(item, arrays) for item in cast(list[Json], content))


def _pairs(items: Json, arrays: Sequence[object]) -> Iterator[tuple[object, object]]:
    for key, item in cast(list[list[Json]], items):
        yield rebuild(key, arrays), rebuild(item, arrays)


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
    "sparse": _sparse,
    "quantised": _quantised,
}
_SEQUENCES: dict[str, Callable[[Iterator[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
