"""Reads ``job.yaml``: the spec, or every fault in it at once with its line and the way out."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from relight.errors import UsageError

from .defaults import default_files
from .home import from_home
from .launch_plan import run_name
from .layers import Layer, Place, layer_of, merged, without_nulls
from .overrides import override
from .spec import JobSpec
from .spec_faults import Fault, Places, SpecError, faults_of, nearest
from .unread_secrets import unread_secrets
from .unread_xid_table import unread_xid_table
from .variables import substitute
from .yaml_lines import YamlFault, read_yaml

MAX_FILE_BYTES: Final = 1024**2
_NO_DEFAULT: Final = ("name", "command", "run_dir", "include")


def load_spec(path: Path, sets: Sequence[str] = (), token: str = "0") -> tuple[JobSpec, str]:
    """The spec in a file, over what it includes and the defaults of user and site, with ``--set``
    words over it; and the file's text, with those words as comments.

    ``token`` is the end of the run id, for ``${run.id}``.

    Raises:
        UsageError: a file cannot be read.
        SpecError: it can, and its content is wrong, or a file of ``secrets`` is not there.
    """
    text = _read(path)
    written = merged([_layer(text, str(path)), *map(override, sets)])
    layer = merged([*default_layers(), *_included(written, path), written])
    if "name" not in layer.value:
        layer = replace(layer, value={**layer.value, "name": run_name(path.stem)})
    layer = substitute(layer, os.environ, f"{_name(layer)}-{token}")
    spec = build_spec(layer.value, layer.places, [*unread_secrets(layer), *unread_xid_table(layer)])
    return spec, text + "".join(f"\n# --set {_one_line(word)}" for word in sets)


def _name(layer: Layer) -> object:
    """The name with its variables, which the id of the run is made of."""
    named = Layer({"name": layer.value["name"]}, layer.places)
    return substitute(named, os.environ, None).value["name"]


def default_layers() -> list[Layer]:
    """What the site, and then the user, wants where a spec says nothing.

    Raises:
        UsageError, SpecError: one of the two files is wrong.
    """
    return [_partial(place, "a default") for place in default_files()]


def parse_spec(text: str, source: str) -> JobSpec:
    """The spec in ``text`` alone; ``source`` names it in messages.

    Raises:
        SpecError: something in it is wrong.
    """
    layer = _layer(text, source)
    return build_spec(layer.value, layer.places)


def build_spec(value: Mapping[str, object], places: Places, known: Sequence[Fault] = ()) -> JobSpec:
    """The spec that ``value`` means; ``places`` says where its parts stand, ``known`` what is wrong
    with it already.

    Raises:
        SpecError: something in it is wrong.
    """
    try:
        spec = JobSpec.model_validate(without_nulls(value))
    except ValidationError as error:
        faults = [fault for details in error.errors() for fault in faults_of(details, places)]
        raise SpecError([*known, *faults]) from error
    if known:
        raise SpecError(known)
    return spec


def _layer(text: str, source: str) -> Layer:
    try:
        value, lines = read_yaml(text)
    except YamlFault as fault:
        raise SpecError([Fault(Place(source, fault.line), str(fault))]) from fault
    if not isinstance(value, dict):
        message = "expected keys such as `command: ...` at the top level"
        raise SpecError([Fault(Place(source, 1), message)])
    return layer_of(value, lines, source)


def _included(written: Layer, path: Path) -> list[Layer]:
    """The files that a spec names, looked for beside it; variables may be in their names."""
    named = {"include": written.value.get("include", [])}
    layer = substitute(Layer(named, written.places), os.environ, "-")
    names = layer.value["include"]
    found, faults = [], []
    for number, name in enumerate(names if isinstance(names, list) else [names]):
        if not isinstance(name, str):
            continue  # it is told as a fault of the spec
        try:
            found.append(_partial(path.parent / from_home(name), "included"))
        except SpecError:
            raise  # it has a place of its own
        except UsageError as error:
            place = nearest(("include", number), written.places)
            faults.append(Fault(place, f"include: {error}"))
    if faults:
        raise SpecError(faults)
    return found


def _partial(path: Path, what: str) -> Layer:
    """A file that holds a part of a spec."""
    layer = _layer(_read(path, private=True), str(path))
    faults = [
        Fault(nearest((key,), layer.places), f"{key!r} cannot be {what}: it is for the spec itself")
        for key in _NO_DEFAULT
        if key in layer.value
    ]
    if faults:
        raise SpecError(faults)
    return layer


def _read(path: Path, *, private: bool = False) -> str:
    """``private``: the file may be somebody else's, but not everybody's: it may name commands."""
    try:
        with path.open("rb") as file:
            open_to_all = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IWOTH
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if private and open_to_all:
        raise UsageError(f"{path} can be written by every user: it is not used; `chmod o-w` it")
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB: it is not a spec")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: it is not a spec") from error


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
