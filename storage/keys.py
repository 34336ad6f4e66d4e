"""Paths in a tree: the keys under which its arrays were saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from .sealed import Json

Path = tuple[str, ...]
Replace = Callable[[Path, Json], Json]
_PAIRS_AT = {"ordered": 0, "defaultdict": 1}


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
        both[1 - place] = replaced(both[1 - place], replace, path)
        return {name: both}
    return {name: replaced(content, replace, path)}


def part_of_path(key: Json) -> str:
    """A key, spelled as in a tree, as people write it."""
    return key if isinstance(key, str) else json.dumps(key)


def _pairs(items: Json, replace: Replace, path: Path) -> Json:
    return [
        [key, replaced(item, replace, (*path, part_of_path(key)))]
        for key, item in cast(list[list[Json]], items)
    ]
