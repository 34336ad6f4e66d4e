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
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from . import numpy_state, plain, registered
from .errors import StateRefused
from .leaf import Form, Leaf
from .sealed import Json

if TYPE_CHECKING:
    import torch

_INLINE_BYTES = 256
_MOST_NESTED = 50
_KEYS = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset)
_Encode = Callable[..., Json]
V = TypeVar("V")


class Encoder:
    """Turns one state into `tree`, `forms` and `leaves`. Raises StateRefused.

    Two names for the same elements of the same memory get one array, so tied weights stay tied.
    """

    def __init__(self, state: Mapping[str, object]) -> None:
        self.leaves: list[Leaf] = []
        self.forms: list[Form] = []
        self._form_numbers: dict[Hashable, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._path: list[str] = []
        self._open: set[int] = set()
        self._by_type = self._known()
        self.tree = self._value(dict(state))

    def _known(self) -> dict[type, _Encode]:
        ndarray = self._arrays(numpy_state.form_key, numpy_state.form_of, numpy_state.same_memory)
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
            np.ndarray: ndarray,
            np.memmap: ndarray,
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

            if issubclass(kind, torch_state.Tensor):
                return self._tensors()
            if kind is torch_state.Size:
                return lambda value: {"torch.Size": list(value)}
        if registered.is_registered(kind):
            return self._nested(self._registered)
        raise self._refusal(
            f"values of type {kind.__module__}.{kind.__qualname__} are not supported; "
            "keep plain values, arrays and tensors in the state, or register the type if it is an "
            "enum, a dataclass or a named tuple"
        )

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
        return [self._at(place, item) for place, item in enumerate(value)]

    def _set(self, value: Iterable[object]) -> list[Json]:
        return sorted((self._key(member) for member in value), key=json.dumps)

    def _dict(self, value: dict[object, object]) -> Json:
        if all(type(key) is str and plain.is_text(key) for key in value):
            items = cast(dict[str, object], value).items()
            return {"dict": {key: self._at(key, item) for key, item in items}}
        return {"items": self._items(value)}

    def _items(self, value: Mapping[object, object]) -> list[Json]:
        return [[self._key(key), self._at(key, item)] for key, item in value.items()]

    def _defaultdict(self, value: defaultdict[object, object]) -> Json:
        factory = plain.FACTORY_NAMES.get(value.default_factory)
        if factory is None:
            raise self._refusal(f"a defaultdict of {value.default_factory!r} is not supported")
        return {"defaultdict": [factory, self._items(value)]}

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
        form = Form("bytes", "|u1", (len(value),), len(value), (len(value),), (0,))
        return self._add(self._number(form), np.frombuffer(value, np.uint8))

    def _scalar(self, value: np.generic) -> Json:
        return self._add(self._form(None, value, numpy_state.form_of), value)

    def _arrays(
        self,
        key_of: Callable[[V], Hashable],
        form_of: Callable[[V], Form],
        same_memory: Callable[[V], Hashable],
    ) -> Callable[[V], Json]:
        def encode(value: V) -> Json:
            form = self._form(key_of(value), value, form_of)
            # The leaves keep all arrays alive, so no address is used twice meanwhile.
            identity = same_memory(value)
            known = self._numbers.get(identity)
            if known is not None:
                return {"array": known}
            self._numbers[identity] = len(self.leaves)
            return self._add(form, value)

        return encode

    def _tensors(self) -> _Encode:
        from . import torch_composed, torch_state

        plain_one = self._arrays(torch_state.form_key, torch_state.form_of, torch_state.same_memory)

        def encode(value: torch.Tensor) -> Json:
            try:
                parts = torch_composed.take_apart(value)
            except ValueError as error:
                raise self._refusal(str(error)) from error
            return {parts[0]: self._value(parts[1])} if parts else plain_one(value)

        return encode

    def _form(self, key: Hashable, value: V, form_of: Callable[[V], Form]) -> int:
        """The number of an array's form, which is the same for arrays of equal key."""
        if key is not None and key in self._form_numbers:
            return self._form_numbers[key]
        try:
            number = self._number(form_of(value))
        except ValueError as error:
            raise self._refusal(str(error)) from error
        self._form_numbers[key] = number
        return number

    def _number(self, form: Form) -> int:
        if form not in self._form_numbers:
            self._form_numbers[form] = len(self.forms)
            self.forms.append(form)
        return self._form_numbers[form]

    def _add(self, form: int, value: object) -> Json:
        self.leaves.append(Leaf(form, value))
        return {"array": len(self.leaves) - 1}

    def _refusal(self, reason: str) -> StateRefused:
        return StateRefused("/".join(self._path), reason)
