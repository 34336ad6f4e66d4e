"""What is wrong with a spec, and where: every fault at once, each with the way out (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from pydantic import BaseModel

from relight.errors import UsageError

from .layers import Place
from .spec import JobSpec
from .spec_checks import NamedFaults
from .spec_values import NAME, VARIABLE
from .yaml_lines import Path

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Places = Mapping[Path, Place]

_MADE_OF: Final = {
    NAME: "letters, digits, `_`, `.` and `-`, a letter or digit first, 40 at most",
    VARIABLE: "letters, digits and `_`, no digit first",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    place: Place
    message: str

    @property
    def line(self) -> int:
        return self.place.line


class SpecError(UsageError):
    """Every fault of one spec."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.place))
        super().__init__("\n".join(f"{fault.place}: {fault.message}" for fault in self.faults))


def faults_of(details: ErrorDetails, places: Places) -> list[Fault]:
    """What pydantic found, in our words."""
    place = _place(details["loc"], places)
    error = details.get("ctx", {}).get("error")
    if isinstance(error, NamedFaults):
        checked = details["loc"]
        return [_named_fault(checked, text, places) for text in error.faults]
    return [Fault(nearest(place, places), _message(details, place))]


def _named_fault(checked: Path, text: str, places: Places) -> Fault:
    """A fault whose text begins with the dotted path that it is about, within what was checked."""
    dotted = text.partition(":")[0].split(".")
    within = (int(part) if part.isdecimal() else part for part in dotted)
    told = ".".join([*map(str, checked), text])
    return Fault(nearest((*checked, *within), places), told)


def _place(loc: tuple[str | int, ...], places: Places) -> tuple[str | int, ...]:
    """The path in the file: pydantic adds the tried types of a union, and ``[key]``."""
    place: tuple[str | int, ...] = ()
    for part in loc:
        if (*place, part) in places:
            place = (*place, part)
    return place


def nearest(path: Path, places: Places) -> Place:
    """Where a part of a spec stands, or what holds it."""
    while path not in places and path:
        path = path[:-1]
    return places.get(path, Place("the spec"))


def _message(details: ErrorDetails, place: tuple[str | int, ...]) -> str:
    dotted = ".".join(str(part) for part in place)
    context: Mapping[str, object] = details.get("ctx", {})
    given = _Given(details["input"])
    match details["type"]:
        case "missing":
            missing = ".".join(str(part) for part in details["loc"])
            return f"{missing} is missing; it has no default"
        case "extra_forbidden":
            key = details["loc"][-1]  # has no place of its own within a value of --set
            return _unknown_key(place if place[-1:] == (key,) else (*place, key))
        case "value_error":
            return f"{dotted}: {context['error']}"
        case "literal_error":
            return f"{dotted}: {given!r} is not known; expected {context['expected']}"
        case "int_type" | "int_from_float":
            return f"{dotted}: {given!r} is not a whole number"
        case "bool_type":
            return f"{dotted}: {given!r} is not true or false; write one of them, without quotes"
        case "less_than_equal":
            return f"{dotted}: {given!r} is too large; it may be at most {context['le']}"
        case "greater_than_equal":
            return f"{dotted}: {given!r} is too small; it must be at least {context['ge']}"
        case "string_type":
            return f"{dotted}: {given!r} is not text: put it in quotes"
        case "list_type":
            return f"{dotted}: {given!r} is not a list; write one item per line, or [a, b]"
        case "dict_type" | "model_type":
            return f"{dotted}: {given!r} is not a group of keys"
        case "string_pattern_mismatch":
            made_of = _MADE_OF[str(context["pattern"])]
            return f"{dotted}: {given!r} is not a name; one is made of {made_of}"
        case _:
            return f"{dotted}: {details['msg']}, not {given!r}"


class _Given:
    """A value as a message shows it: what YAML calls null is no None to its reader."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "null" if self._value is None else repr(self._value)


def _unknown_key(place: tuple[str | int, ...]) -> str:
    key = str(place[-1])
    known = _known_keys(place[:-1])
    dotted = ".".join(str(part) for part in place)
    near = difflib.get_close_matches(key, known, n=1)
    meant = ".".join(str(part) for part in (*place[:-1], *near))
    hint = f"did you mean {meant!r}?" if near else f"known here: {', '.join(known)}"
    return f"unknown key {dotted!r}; {hint}"


def _known_keys(place: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in place:
        field = model.model_fields.get(str(part))
        if field is None:  # the name of an entry, as in secrets.NAME
            continue
        parts = get_args(field.annotation)
        kinds = (field.annotation, *parts, *(kind for part in parts for kind in get_args(part)))
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), model)
    return sorted(field.alias or name for name, field in model.model_fields.items())
