"""The way back: a tree and its arrays as the Python state that was saved."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from . import plain
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
    if name == "numpy.str":
        return np.str_(cast(str, rebuild(content, arrays)))
    if name == "numpy.bytes":
        return np.bytes_(cast(bytes, rebuild(content, arrays)))
    return _container(name, content, arrays)


def _container(name: str, content: Json, arrays: Sequence[object]) -> object:
    if name == "dict":
        return {key: rebuild(item, arrays) for key, item in cast(dict[str, Json], content).items()}
    if name == "items":
        return dict(_pairs(content, arrays))
    if name == "ordered":
        items, attributes = cast(list[Json], content)
        ordered = OrderedDict(_pairs(items, arrays))
        vars(ordered).update(cast(dict[str, object], rebuild(attributes, arrays)))
        return ordered
    return _SEQUENCES[name](rebuild(item, arrays) for item in cast(list[Json], content))


def _pairs(items: Json, arrays: Sequence[object]) -> Iterator[tuple[object, object]]:
    for key, item in cast(list[list[Json]], items):
        yield rebuild(key, arrays), rebuild(item, arrays)


_ATOMS: dict[str, Callable[[str], object]] = {
    "int": plain.decode_int,
    "float": plain.decode_float,
    "complex": plain.decode_complex,
    "str": plain.decode_str,
    "bytes": plain.decode_bytes,
}
_SEQUENCES: dict[str, Callable[[Iterator[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
