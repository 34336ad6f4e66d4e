"""The user's own types that may be in a state: enums, dataclasses and named tuples, by allow-list.

A type is found by its name among those that the program has registered, when saving and when
loading. Nothing is ever imported because a checkpoint names it, and no code of the type runs.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeVar, cast

from relight.counted import counted

from .errors import TypeNotRegistered, UnfitType

T = TypeVar("T")
_TYPES: dict[str, type] = {}


def register(kind: type[T]) -> type[T]:
    """Allows an enum, dataclass or named tuple in states; also as a decorator. Raises UnfitType."""
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not (issubclass(kind, enum.Enum) or dataclasses.is_dataclass(kind) or is_named_tuple):
        raise UnfitType(_name(kind))
    _TYPES[_name(kind)] = kind
    return kind


def is_registered(kind: type) -> bool:
    return _TYPES.get(_name(kind)) is kind


def take_apart(value: object) -> tuple[str, str, object]:
    """Spelling, name and content of a value of a registered type; put_together has the way back.

    Raises ValueError when the content would not be all of it.
    """
    name = _name(type(value))
    if isinstance(value, enum.Enum):
        if value.name not in type(value).__members__:
            raise ValueError(f"{value!r} has no name of its own")
        return "enum", name, value.name
    if isinstance(value, tuple):
        return "namedtuple", name, tuple(value)
    names = _fields(type(value))
    more = set(getattr(value, "__dict__", {})) - set(names)
    missing = [one for one in names if not hasattr(value, one)]
    if more or missing:
        raise ValueError(f"{name} has attributes that are no fields, or lacks fields")
    return "dataclass", name, {one: getattr(value, one) for one in names}


def put_together(spelling: str, name: str, content: object) -> object:
    """Raises TypeNotRegistered, also when the type has other members or fields by now."""
    kind = _TYPES.get(name)
    if kind is None:
        raise TypeNotRegistered(name, "it is not registered")
    if spelling == "enum" and issubclass(kind, enum.Enum):
        if content not in kind.__members__:
            raise TypeNotRegistered(name, f"it has no member {content!r}")
        return kind[cast(str, content)]
    if spelling == "namedtuple" and issubclass(kind, tuple):
        items = cast(list[object], content)
        if len(items) != len(kind._fields):  # type: ignore[attr-defined]
            raise TypeNotRegistered(name, f"it has not {counted(len(items), 'field')} any more")
        return tuple.__new__(kind, items)
    values = cast(dict[str, object], content)
    if not dataclasses.is_dataclass(kind) or set(_fields(kind)) != set(values):
        raise TypeNotRegistered(name, f"it has not the fields {sorted(values)} any more")
    made = object.__new__(kind)
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return made


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
