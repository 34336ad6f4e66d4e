"""Paths in a tree: the keys under which its arrays and plain values were saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from .sealed import Json

Path = tuple[str, ...]
Replace = Callable[[Path, Json], Json]
_NESTED = ("dict", "items", "array", "written_by")
_PAIRS_AT = {"ordered": 0, "defaultdict": 1}


class NoText(str):
    """A key that is no text, as people write it; other than the text that looks the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoText) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((NoText, str.__hash__(self)))


def array_key(tree: Json, number: int) -> str:
    """The key under which an array was saved, parts joined by `/`; the first of several."""
    for path, node in array_paths(tree):
        if node == {"array": number}:
            return "/".join(path)
    return f"array {number}"


def array_paths(tree: Json) -> list[tuple[Path, Mapping[str, int]]]:
    """Every place where an array stands: {"array": n}, or {"written_by": rank} for another's."""
    found: list[tuple[Path, Mapping[str, int]]] = []

    def collect(path: Path, node: Json) -> Json:
        found.append((path, cast(Mapping[str, int], node)))
        return node

    replaced(tree, collect)
    return found


def replaced(tree: Json, replace: Replace, path: Path = ()) -> Json:
    """The tree with something else where its arrays stand."""
    if isinstance(tree, list):
        return [replaced(item, replace, (*path, str(n))) for n, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    ((name, content),) = tree.items()
    if name in ("array", "written_by"):
        return replace(path, tree)
    if name == "dict":
        members = cast(dict[str, Json], content).items()
        return {"dict": {key: replaced(item, replace, (*path, key)) for key, item in members}}
    if name == "items":
        return {"items": _pairs(content, replace, path)}
    if name in _PAIRS_AT:
        both = list(cast(list[Json], content))
        place = _PAIRS_AT[name]
        both[place] = _pairs(both[place], replace, path)
        both[1 - place] = replaced(both[1 - place], replace, (*path, NoText("attributes")))
        return {name: both}
    return {name: replaced(content, replace, path)}


def plain_values(tree: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """What is no array, spelled as in the tree, as deep as dicts and what holds them are nested."""
    if isinstance(tree, list) and any(_is_nested(item) for item in tree):
        for number, item in enumerate(tree):
            yield from plain_values(item, (*path, str(number)))
        return
    if not isinstance(tree, dict):
        yield path, tree
        return
    ((name, content),) = tree.items()
    if name in ("array", "written_by"):
        return
    if name == "dict":
        for part, item in cast(dict[str, Json], content).items():
            yield from plain_values(item, (*path, part))
    elif name == "items" or name in _PAIRS_AT:
        pairs = content if name == "items" else cast(list[Json], content)[_PAIRS_AT[name]]
        for key, item in cast(list[list[Json]], pairs):
            yield from plain_values(item, (*path, part_of_path(key)))
    elif isinstance(content, list) and any(_is_nested(item) for item in content):
        yield from plain_values(content, path)
    else:
        yield path, tree


def _is_nested(tree: Json) -> bool:
    return isinstance(tree, dict) and any(name in _NESTED for name in tree)


def part_of_path(key: Json) -> str:
    """A key, spelled as in a tree, as people write it."""
    return key if isinstance(key, str) else NoText(json.dumps(key))


def _pairs(items: Json, replace: Replace, path: Path) -> Json:
    return [
        [key, replaced(item, replace, (*path, part_of_path(key)))]
        for key, item in cast(list[list[Json]], items)
    ]
