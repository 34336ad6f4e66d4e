"""Names the arrays of a tree for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from .sealed import Json


def array_key(tree: Json, number: int) -> str:
    """The key under which an array was saved, parts joined by `/`; the first of several."""
    return "/".join(next(_paths(tree, number), (f"array {number}",)))


def _paths(tree: Json, number: int) -> Iterator[tuple[str, ...]]:
    if tree == {"array": number}:
        yield ()
        return
    for key, item in _children(tree):
        for path in _paths(item, number):
            yield (key, *path)


def _children(tree: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(tree, list):
        yield from ((str(place), item) for place, item in enumerate(tree))
    if not isinstance(tree, dict):
        return
    ((name, content),) = tree.items()
    if name == "dict":
        yield from cast(dict[str, Json], content).items()
    elif name in ("items", "ordered"):
        pairs = content if name == "items" else cast(list[Json], content)[0]
        for key, item in cast(list[list[Json]], pairs):
            yield key if isinstance(key, str) else json.dumps(key), item
    elif name in ("tuple", "set", "frozenset"):
        yield from _children(content)
