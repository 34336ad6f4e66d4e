"""A nested Python state as a JSON tree and a list of arrays. No pickle, no guessing.

In the tree None, bool, text, finite float, int of up to 64 bits and list stand for themselves; all
else is an object whose one member names the type, and {"array": n} stands for the n-th array. What
has no spelling is refused, by key, before anything is written: subclasses too, as their type would
be lost. `rebuild` has the way back.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import numpy as np

from . import numpy_state, plain
from .errors import StateRefused
from .leaf import Leaf
from .sealed import Json

V = TypeVar("V")
_INLINE_BYTES = 256
_MOST_NESTED = 50
_KEYS = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset)
_CONTAINERS = (dict, OrderedDict, list, tuple, set, frozenset)


class Encoder:
    """Turns one state into `tree` and `leaves`. Raises StateRefused.

    Two names for the same elements of the same memory get one array, so tied weights stay tied.
    """

    def __init__(self, state: Mapping[str, object]) -> None:
        self.leaves: list[Leaf] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._alive: list[object] = []  # no address may be used twice while they are compared
        self._path: list[str] = []
        self._open: set[int] = set()
        self.tree = self._value(dict(state))

    def _value(self, value: object) -> Json:
        match value:
            case None | bool():
                return value
            case int() if type(value) is int:
                return plain.encode_int(value)
            case float() if type(value) is float:
                return plain.encode_float(value)
            case complex() if type(value) is complex:
                return plain.encode_complex(value)
            case str() if type(value) is str:
                return plain.encode_str(value)
            case bytes() if type(value) is bytes:
                return self._bytes(value)
            case _ if type(value) in _CONTAINERS:
                return self._container(value)
        return self._array(value)

    def _container(self, value: object) -> Json:
        if id(value) in self._open:
            raise self._refusal("it contains itself")
        if len(self._open) >= _MOST_NESTED:
            raise self._refusal(f"it is nested more than {_MOST_NESTED} levels deep")
        self._open.add(id(value))
        members = self._members(value)
        self._open.discard(id(value))
        return members

    def _members(self, value: object) -> Json:
        if isinstance(value, OrderedDict):
            # torch keeps the versions of its modules in an attribute of the state dict.
            return {"ordered": [self._items(value), self._value(vars(value))]}
        if isinstance(value, dict):
            if all(type(key) is str and plain.is_text(key) for key in value):
                return {"dict": {key: self._at(key, item) for key, item in value.items()}}
            return {"items": self._items(value)}
        if isinstance(value, (list, tuple)):
            members = [self._at(place, item) for place, item in enumerate(value)]
            return members if isinstance(value, list) else {"tuple": members}
        elements = [self._key(item) for item in cast("set[object]", value)]
        return {type(value).__name__: sorted(elements, key=json.dumps)}

    def _items(self, value: Mapping[object, object]) -> Json:
        return [[self._key(key), self._at(key, item)] for key, item in value.items()]

    def _at(self, key: object, value: object) -> Json:
        self._path.append(key if isinstance(key, str) else repr(key))
        encoded = self._value(value)
        self._path.pop()
        return encoded

    def _key(self, key: object) -> Json:
        if type(key) not in _KEYS:
            raise self._refusal(f"{key!r:.80} is a key or set member of type {type(key).__name__}")
        if isinstance(key, (tuple, frozenset)):
            for part in key:
                self._key(part)
        return self._value(key)

    def _bytes(self, value: bytes) -> Json:
        if len(value) <= _INLINE_BYTES:
            return plain.encode_bytes(value)
        view = memoryview(value)
        return self._add(Leaf("bytes", "|u1", (len(value),), len(value), lambda: view))

    def _array(self, value: object) -> Json:
        # As arrays these two would lose the zeros at their end.
        if type(value) is np.str_:
            return {"numpy.str": plain.encode_str(str.__str__(value))}
        if type(value) is np.bytes_:
            return {"numpy.bytes": plain.encode_bytes(bytes(value))}
        if isinstance(value, np.generic):
            return self._add(self._described(value, numpy_state.to_leaf))
        if type(value) in (np.ndarray, np.memmap):
            array = cast(numpy_state.Array, value)
            leaf = self._described(array, numpy_state.to_leaf)
            return self._tied(array, numpy_state.same_memory(array), leaf)
        if "torch" in sys.modules:
            from . import torch_state

            if torch_state.is_tensor(value):
                leaf = self._described(value, torch_state.to_leaf)
                return self._tied(value, torch_state.same_memory(value), leaf)
        kind = type(value)
        raise self._refusal(
            f"values of type {kind.__module__}.{kind.__qualname__} are not supported; "
            "keep plain values, arrays and tensors in the state"
        )

    def _described(self, value: V, to_leaf: Callable[[V], Leaf]) -> Leaf:
        try:
            return to_leaf(value)
        except ValueError as error:
            raise self._refusal(str(error)) from error

    def _tied(self, value: object, identity: tuple[object, ...], leaf: Leaf) -> Json:
        if identity in self._numbers:
            return {"array": self._numbers[identity]}
        self._alive.append(value)
        self._numbers[identity] = len(self.leaves)
        return self._add(leaf)

    def _add(self, leaf: Leaf) -> Json:
        self.leaves.append(leaf)
        return {"array": len(self.leaves) - 1}

    def _refusal(self, reason: str) -> StateRefused:
        return StateRefused("/".join(self._path), reason)
