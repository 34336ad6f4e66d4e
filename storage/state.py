"""A nested Python state as a JSON tree and a list of arrays. No pickle, no guessing.

In the tree None, bool, text, finite float, int of up to 64 bits and list stand for themselves; all
else is an object whose one member names the type, and {"array": n} stands for the n-th array. What
has no spelling is refused, by key, before anything is written: subclasses too, as their type would
be lost. `rebuild` has the way back.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from . import numpy_state, plain, registered
from .arrays import Arrays
from .boxes import Part, Replicated
from .errors import StateRefused
from .keys import part_of_path
from .leaf import Form
from .sealed import Json

if TYPE_CHECKING:
    import torch
    from torch.distributed.tensor import DTensor

_INLINE_BYTES = 256
_MOST_NESTED = 50
_KEYS = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset)
_NO_PARTS = (Part, Replicated, np.generic, bytes)
_Encode = Callable[..., Json]


class Encoder:
    """Turns one rank's state into `tree` and `arrays`. Raises StateRefused."""

    def __init__(self, state: Mapping[str, object], rank: int = 0, world_size: int = 1) -> None:
        self.arrays = Arrays(rank, world_size)
        self._path: list[str] = []
        self._open: set[int] = set()
        # By memory: taken apart once, tied ones have the same parts, which they are known by.
        self._composed: dict[Hashable, tuple[str, dict[str, object], object]] = {}
        self._by_type = self._known()
        self.tree = self._value(dict(state))

    def _known(self) -> dict[type, _Encode]:
        return {
            type(None): lambda value: value,
            bool: lambda value: value,
            int: plain.encode_int,
            float: plain.encode_float,
            complex: plain.encode_complex,
            str: plain.encode_str,
            bytes: self._bytes,
            bytearray: lambda value: {"bytearray": self._bytes(bytes(value))},
            list: self._nested(self._list),
            tuple: self._nested(lambda value: {"tuple": self._list(value)}),
            set: self._nested(lambda value: {"set": self._set(value)}),
            frozenset: self._nested(lambda value: {"frozenset": self._set(value)}),
            dict: self._nested(self._dict),
            # torch keeps the versions of its modules in an attribute of the state dict.
            OrderedDict: self._nested(
                lambda value: {"ordered": [self._items(value), self._value(vars(value))]}
            ),
            defaultdict: self._nested(self._defaultdict),
            Counter: self._nested(lambda value: {"counter": self._items(value)}),
            deque: self._nested(lambda value: {"deque": [self._list(value), value.maxlen]}),
            # As arrays these two would lose the zeros at their end.
            np.str_: lambda value: {"numpy.str": plain.encode_str(str.__str__(value))},
            np.bytes_: lambda value: {"numpy.bytes": plain.encode_bytes(bytes(value))},
            np.ndarray: self._ndarray,
            np.memmap: self._ndarray,
            Part: self._part,
            Replicated: self._replicated,
        }

    def _value(self, value: object) -> Json:
        kind = type(value)
        encode = self._by_type.get(kind)
        if encode is None:
            encode = self._by_type[kind] = self._found(kind)
        return encode(value)

    def _found(self, kind: type) -> _Encode:
        """How to spell values of a type that is not built in. Raises StateRefused."""
        if issubclass(kind, np.generic):
            return self._scalar
        if "torch" in sys.modules:
            from . import torch_state

            if torch_state.is_dtensor(kind):
                return self._dtensors()
            if issubclass(kind, torch_state.Tensor):
                return self._tensors()
            if kind is torch_state.Size:
                return lambda value: {"torch.Size": list(value)}
        if registered.is_registered(kind):
            return self._nested(self._registered)
        called = f"{kind.__module__}.{kind.__qualname__}"
        raise self._refusal(f"values of type {called} are not supported; {_way_out(kind)}")

    def _nested(self, encode: _Encode) -> _Encode:
        def guarded(value: object) -> Json:
            if id(value) in self._open:
                raise self._refusal("it contains itself")
            if len(self._open) >= _MOST_NESTED:
                raise self._refusal(f"it is nested more than {_MOST_NESTED} levels deep")
            self._open.add(id(value))
            encoded = encode(value)
            self._open.discard(id(value))
            return encoded

        return guarded

    def _list(self, value: Iterable[object]) -> list[Json]:
        return [self._at(str(place), item) for place, item in enumerate(value)]

    def _set(self, value: Iterable[object]) -> list[Json]:
        return sorted((self._key(member) for member in value), key=json.dumps)

    def _dict(self, value: dict[object, object]) -> Json:
        if all(type(key) is str and plain.is_text(key) for key in value):
            items = cast(dict[str, object], value).items()
            return {"dict": {key: self._at(key, item) for key, item in items}}
        return {"items": self._items(value)}

    def _items(self, value: Mapping[object, object]) -> list[Json]:
        keys = [self._key(key) for key in value]
        return [
            [key, self._at(part_of_path(key), item)]
            for key, item in zip(keys, value.values(), strict=True)
        ]

    def _defaultdict(self, value: defaultdict[object, object]) -> Json:
        factory = plain.FACTORY_NAMES.get(value.default_factory)
        if factory is None:
            raise self._refusal(f"a defaultdict of {value.default_factory!r} is not supported")
        return {"defaultdict": [factory, self._items(value)]}

    def _at(self, key: str, value: object) -> Json:
        self._path.append(key)
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

    def _registered(self, value: object) -> Json:
        try:
            spelling, name, content = registered.take_apart(value)
        except ValueError as error:
            raise self._refusal(str(error)) from error
        encoded = self._list(content) if isinstance(content, tuple) else self._value(content)
        return {spelling: [name, encoded]}

    def _bytes(self, value: bytes) -> Json:
        if len(value) <= _INLINE_BYTES:
            return plain.encode_bytes(value)
        form = Form("bytes", "|u1", (len(value),), len(value))
        return self.arrays.add_new(np.frombuffer(value, np.uint8), form)

    def _scalar(self, value: np.generic) -> Json:
        try:
            return self.arrays.add_new(value, numpy_state.form_of(value))
        except ValueError as error:
            raise self._refusal(str(error)) from error

    def _ndarray(self, value: numpy_state.Array) -> Json:
        key, memory = numpy_state.form_key(value), numpy_state.same_memory(value)
        try:
            return self.arrays.add(value, key, numpy_state.form_of, memory)
        except ValueError as error:
            raise self._refusal(str(error)) from error

    def _tensors(self) -> _Encode:
        from . import torch_composed, torch_state

        def encode(value: torch.Tensor) -> Json:
            memory = torch_state.same_memory(value)
            try:
                if memory not in self._composed:
                    parts = torch_composed.take_apart(value)
                    if parts is None:
                        key = torch_state.form_key(value)
                        return self.arrays.add(value, key, torch_state.form_of, memory)
                    self._composed[memory] = *parts, value
            except ValueError as error:
                raise self._refusal(str(error)) from error
            if self.arrays.box is not None:
                raise self._refusal("sparse and quantised tensors cannot be parts of others")
            spelling, content, _ = self._composed[memory]
            return {spelling: self._value(content)}

        return encode

    def _dtensors(self) -> _Encode:
        from . import torch_distributed

        def encode(value: DTensor) -> Json:
            try:
                part, writer = torch_distributed.take_apart(value, "/".join(self._path))
            except ValueError as error:
                raise self._refusal(str(error)) from error
            return self._part(part, writer)

        return encode

    def _part(self, part: Part, writer: int | None = None) -> Json:
        array = self._by_type.get(type(part.array)) or self._found(type(part.array))
        arrays = self.arrays
        if arrays.replicated or isinstance(part.array, _NO_PARTS):
            raise self._refusal("only arrays and tensors can be parts, and not of replicated ones")
        arrays.box, arrays.writer = (tuple(part.offset), tuple(part.global_shape)), writer
        encoded = array(part.array)
        arrays.box = arrays.writer = None
        if not isinstance(encoded, dict) or encoded.keys() not in ({"array"}, {"written_by"}):
            raise self._refusal("only arrays and tensors can be parts, and not of replicated ones")
        return encoded

    def _replicated(self, replicated: Replicated) -> Json:
        if self.arrays.replicated:
            raise self._refusal("it is replicated twice")
        self.arrays.replicated = lambda: repr([(type(one) is str, one) for one in self._path])
        encoded = self._value(replicated.value)
        self.arrays.replicated = None
        return encoded

    def _refusal(self, reason: str) -> StateRefused:
        return StateRefused("/".join(self._path), reason)


def _way_out(kind: type) -> str:
    is_generator = kind.__name__ == "Generator" and kind.__module__.startswith(("numpy.", "torch"))
    if is_generator or hasattr(kind, "load_state_dict"):
        return "protect it by a name of its own, in no dict or list: run.protect(NAME=...)"
    return (
        "keep plain values, arrays and tensors in the state, or register the type if it is an "
        "enum, a dataclass or a named tuple: relight.storage.registered.register(TYPE)"
    )
