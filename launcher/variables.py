"""``${VAR}`` and ``${run.id}`` in the values of a spec (pure).

Values are put in after the YAML was read: they can become no syntax of it. What a shell reads, and
the command, is left alone: ``${VAR}`` has a meaning there. ``${run.id}`` has none, and is put in.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .layers import Layer, Place
from .spec_checks import is_secret
from .spec_faults import Fault, SpecError, nearest
from .yaml_lines import Path

_ANY: Final = re.compile(r"\$(\$?)\{([^{}]*)\}")
_OURS: Final = re.compile(r"\$()\{((?:run|sweep)\.[^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"[-+]?[0-9]+")
_OF_SHELLS: Final = (("command",), ("resume",), ("setup",), ("health", "site_command"))
_OF_SWEEPS: Final = (("command",), ("resume",), ("env",), ("checkpoint", "directory"))
_WITH_NUMBERS: Final = ("resources", "restart", "checkpoint", "health")


def substitute(layer: Layer, env: Mapping[str, str], run_id: str | None) -> Layer:
    """The layer with all variables replaced; ``$${`` stands for ``${``. Without a ``run_id`` those
    that come from it may not be used, as in the name that it is made of.

    Raises:
        SpecError: a variable is not there, or may not be used.
    """
    known = {} if run_id is None else {"run.id": run_id, "run.name": run_id.rpartition("-")[0]}
    walk = _Walk(layer.places, env, known, _sweep_names(layer.value.get("sweep")))
    value = walk.group(layer.value, ())
    if walk.faults:
        raise SpecError(walk.faults)
    return Layer(value, layer.places)


def _sweep_names(sweep: object) -> frozenset[str]:
    """The names that a sweep gives, whatever else is wrong with it."""
    first = sweep[0] if isinstance(sweep, list) and sweep else sweep
    return frozenset(f"sweep.{name}" for name in first) if isinstance(first, dict) else frozenset()


@dataclass(slots=True)
class _Walk:
    places: Mapping[Path, Place]
    env: Mapping[str, str]
    ours: Mapping[str, str]
    swept: frozenset[str]
    faults: list[Fault] = field(default_factory=list)

    def group(self, value: Mapping[str, object], path: Path) -> dict[str, object]:
        return {key: self._any(item, (*path, key)) for key, item in value.items()}

    def _any(self, value: object, path: Path) -> object:
        if isinstance(value, dict):
            return self.group(value, path)
        if isinstance(value, list):
            return [self._any(item, (*path, index)) for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: Path) -> object:
        of_shell = any(path[: len(place)] == place for place in _OF_SHELLS)
        found = (_OURS if of_shell else _ANY).sub(lambda match: self._value(match, path), text)
        whole = found != text and _ANY.fullmatch(text) is not None
        if whole and path[0] in _WITH_NUMBERS and _NUMBER.fullmatch(found):
            return int(found)
        return found

    def _value(self, match: re.Match[str], path: Path) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name in self.ours:
            return self.ours[name]
        if name.startswith("sweep."):
            self._check_swept(name, path)
            return match[0]  # each task of the sweep has its own
        if is_secret(name):
            self._fault(path, f"${{{name}}} is a secret by its name: give it by `secrets`")
        elif name in self.env:
            return self.env[name]
        elif _NAME.fullmatch(name):
            near = difflib.get_close_matches(name, self.env, n=1, cutoff=0.8)
            hint = f"; did you mean ${{{near[0]}}}?" if near else ""
            self._fault(path, f"the variable {name} is not set{hint}")
        else:
            there = ", ".join((*self.ours, "those of the environment"))
            self._fault(path, f"${{{name}}} is no variable; there are {there}")
        return ""

    def _check_swept(self, name: str, path: Path) -> None:
        if name not in self.swept:
            there = ", ".join(sorted(self.swept)) or "no sweep"
            self._fault(path, f"${{{name}}} is no value of the sweep; there is {there}")
        elif not any(path[: len(place)] == place for place in _OF_SWEEPS):
            places = ", ".join(".".join(place) for place in _OF_SWEEPS)
            self._fault(path, f"${{{name}}} cannot differ here; it can in {places}")

    def _fault(self, path: Path, message: str) -> None:
        dotted = ".".join(map(str, path))
        self.faults.append(Fault(nearest(path, self.places), f"{dotted}: {message}"))
