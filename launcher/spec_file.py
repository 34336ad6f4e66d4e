"""Reads ``job.yaml``: the spec, or every fault in it at once with its line and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from relight.errors import UsageError

from .defaults import default_files, with_defaults
from .spec import JobSpec, SiteFile
from .spec_checks import NamedFaults
from .yaml_lines import Lines, YamlFault, read_yaml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_FILE_BYTES: Final = 1024**2
Model = TypeVar("Model", JobSpec, SiteFile)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where."""

    line: int
    message: str


class SpecError(UsageError):
    """Every fault of one spec file."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__(
            "\n".join(f"{source}:{fault.line}: {fault.message}" for fault in self.faults)
        )


def load_spec(path: Path) -> tuple[JobSpec, str]:
    """The spec in a file, and the file's text.

    Raises:
        UsageError: the file cannot be read.
        SpecError: it can, and its content is wrong.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB: it is not a spec")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: it is not a spec") from error
    return with_defaults(parse_spec(text, str(path)), load_defaults()), text


def load_defaults() -> list[SiteFile]:
    """What the site, and then the user, wants for all runs.

    Raises:
        SpecError: one of the two files is wrong.
    """
    return [_parse(SiteFile, place.read_text(), str(place)) for place in default_files()]


def parse_spec(text: str, source: str) -> JobSpec:
    """The spec in ``text``; ``source`` names it in messages.

    Raises:
        SpecError: something in it is wrong.
    """
    return _parse(JobSpec, text, source)


def _parse(model: type[Model], text: str, source: str) -> Model:
    try:
        value, lines = read_yaml(text)
    except YamlFault as fault:
        raise SpecError(source, [Fault(fault.line, str(fault))]) from fault
    if not isinstance(value, dict):
        key = next(iter(model.model_fields))
        raise SpecError(source, [Fault(1, f"expected keys such as `{key}: ...` at the top level")])
    return _built(model, value, lines, source)


def build_spec(value: Mapping[str, object], lines: Lines, source: str) -> JobSpec:
    """The spec that ``value`` means; ``lines`` says where its parts stand in ``source``.

    Raises:
        SpecError: something in it is wrong.
    """
    return _built(JobSpec, value, lines, source)


def _built(model: type[Model], value: Mapping[str, object], lines: Lines, source: str) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [fault for details in error.errors() for fault in _faults(details, lines)]
        raise SpecError(source, faults) from error


def _faults(details: ErrorDetails, lines: Lines) -> list[Fault]:
    place = _place(details["loc"], lines)
    error = details.get("ctx", {}).get("error")
    if isinstance(error, NamedFaults):
        return [_named_fault(text, lines) for text in error.faults]
    return [Fault(_line_of(place, lines), _message(details, place))]


def _named_fault(text: str, lines: Lines) -> Fault:
    """A fault whose text begins with the dotted path that it is about."""
    dotted = text.partition(":")[0]
    return Fault(_line_of(tuple(dotted.split(".")), lines), text)


def _place(loc: tuple[str | int, ...], lines: Lines) -> tuple[str | int, ...]:
    """The path in the file: pydantic adds the tried types of a union, and ``[key]``."""
    place: tuple[str | int, ...] = ()
    for part in loc:
        if (*place, part) in lines:
            place = (*place, part)
    return place


def _line_of(path: tuple[str | int, ...], lines: Lines) -> int:
    while path not in lines and path:
        path = path[:-1]
    return lines.get(path, 1)


def _message(details: ErrorDetails, place: tuple[str | int, ...]) -> str:
    dotted = ".".join(str(part) for part in place)
    context: Mapping[str, object] = details.get("ctx", {})
    given = details["input"]
    match details["type"]:
        case "missing":
            missing = ".".join(str(part) for part in details["loc"])
            return f"{missing} is missing; it has no default"
        case "extra_forbidden":
            return _unknown_key(place)
        case "value_error":
            return f"{dotted}: {context['error']}"
        case "literal_error":
            return f"{dotted}: {given!r} is not known; expected {context['expected']}"
        case "int_type" | "int_from_float":
            return f"{dotted}: {given!r} is not a whole number"
        case "greater_than_equal":
            return f"{dotted}: {given!r} is too small; it must be at least {context['ge']}"
        case "string_type":
            return f"{dotted}: {given!r} is not text: put it in quotes"
        case "list_type":
            return f"{dotted}: {given!r} is not a list; write one item per line, or [a, b]"
        case "dict_type" | "model_type":
            return f"{dotted}: {given!r} is not a group of keys"
        case "string_pattern_mismatch":
            return f"{dotted}: {given!r} does not match {context['pattern']}"
        case _:
            return f"{dotted}: {details['msg']}, not {given!r}"


def _unknown_key(place: tuple[str | int, ...]) -> str:
    key = str(place[-1])
    known = _known_keys(place[:-1])
    dotted = ".".join(str(part) for part in place)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return f"unknown key {dotted!r}; {hint}"


def _known_keys(place: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = JobSpec
    for part in place:
        field = model.model_fields.get(str(part))
        if field is None:  # the name of an entry, as in secrets.NAME
            continue
        kinds = (field.annotation, *get_args(field.annotation))
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), model)
    return sorted(field.alias or name for name, field in model.model_fields.items())
