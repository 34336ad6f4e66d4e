"""Events and actions as JSON values, for the journal and back from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from types import UnionType
from typing import Final, TypeVar, get_args, get_origin, get_type_hints

from relight.errors import RelightError

from .actions import Action, Finish
from .events import Event

Kind = TypeVar("Kind")
_EVENT_TYPES: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(Event)}


class UnknownRecord(RelightError):
    """A journal holds an event that this version does not know or cannot read."""


def to_json(subject: Event | Action) -> dict[str, object]:
    """The fields; the name goes beside them (``type(subject).__name__``)."""
    return dataclasses.asdict(subject)


def event_from_json(name: str, data: Mapping[str, object]) -> Event:
    """The inverse of :func:`to_json` for events.

    Raises:
        UnknownRecord: no such event, or fields that do not fit it.
    """
    kind = _EVENT_TYPES.get(name)
    if kind is None:
        raise UnknownRecord(
            f"no event is called {name!r}: was the journal written by a newer relight?"
        )
    event: Event = _from_json(kind, data)
    return event


def finish_from_json(data: Mapping[str, object]) -> Finish:
    """The inverse of :func:`to_json` for the end of an attempt.

    Raises:
        UnknownRecord: fields that do not fit it.
    """
    return _from_json(Finish, data)


def _from_json(kind: type[Kind], data: Mapping[str, object]) -> Kind:
    hints = get_type_hints(kind)
    try:
        return kind(**{key: _typed(hints[key], value) for key, value in data.items()})
    except (KeyError, TypeError, ValueError) as error:
        name = kind.__name__
        raise UnknownRecord(f"the record {name} of the journal is not readable: {error}") from error


def _typed(hint: object, value: object) -> object:
    """JSON knows no tuples and no enums."""
    if isinstance(hint, UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return value if value is None else _typed(options[0], value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(str(value))
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is not a list")
        return tuple(value)
    return value
