"""A spec as layers of values, each part with the place that it comes from (pure).

The site's defaults, the user's, included files, the spec itself and ``--set``: later ones count
more. Groups are merged key by key, everything else is replaced whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .yaml_lines import Lines, Path

_OF_USERS: Final = frozenset({"env", "sbatch", "secrets", "sweep"})


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of a file, counted from 1; without one a word of the command line."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Layer:
    """``places`` says where the parts of ``value`` stand."""

    value: Mapping[str, object]
    places: Mapping[Path, Place]


def layer_of(value: Mapping[str, object], lines: Lines, source: str) -> Layer:
    """One file as a layer."""
    return Layer(value, {path: Place(source, line) for path, line in lines.items()})


def merged(layers: Sequence[Layer]) -> Layer:
    """All layers as one."""
    value: Mapping[str, object] = {}
    places: dict[Path, Place] = {}
    for layer in layers:
        value = _over(value, layer.value)
        places |= layer.places
    return Layer(value, places)


def _over(below: Mapping[str, object], above: Mapping[str, object]) -> Mapping[str, object]:
    together = dict(below)
    for key, value in above.items():
        before = together.get(key)
        both_groups = isinstance(before, Mapping) and isinstance(value, Mapping)
        if value is None and key in together:
            del together[key]
            continue
        together[key] = _over(before, value) if both_groups else value  # type: ignore[arg-type]
    return together


def without_nulls(value: Mapping[str, object]) -> dict[str, object]:
    """A key that is null is left out, however deep: its default counts.

    Where users choose the names there is no default, and `exclusive:` alone may be a mistake.
    """
    return {
        key: without_nulls(item) if isinstance(item, Mapping) and key not in _OF_USERS else item
        for key, item in value.items()
        if item is not None
    }
