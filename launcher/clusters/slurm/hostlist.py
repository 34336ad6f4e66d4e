"""Slurm's compressed node lists, and lists of numbers by node (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

_NO_LIST: Final = frozenset({"", "(null)", "None assigned", "None"})
_PIECE: Final = re.compile(r"\[([^\]]*)\]|([^,\[\]]+)|(,)")
_COUNT: Final = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The nodes of ``n[1-3,07],login``, in the list's order.

    Raises:
        ValueError: it is not a node list.
    """
    if text in _NO_LIST:
        return ()
    return tuple(name for group in _groups(text) for name in _names(group))


def expand_counts(text: str) -> tuple[int, ...]:
    """The numbers of ``4(x2),2``, one for each node; none of an empty text.

    Raises:
        ValueError: it is not such a list.
    """
    counts: list[int] = []
    for part in text.split(",") if text else ():
        match = _COUNT.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of numbers by node: {part!r}")
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def _groups(text: str) -> Iterator[list[list[str]]]:
    """Each comma-separated group as its parts, every part a list of alternatives."""
    group: list[list[str]] = []
    position = 0
    for match in _PIECE.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        ranges, literal, _comma = match.groups()
        if ranges is not None:
            group.append([number for part in ranges.split(",") for number in _range(part, text)])
        elif literal is not None:
            group.append([literal])
        else:
            yield group
            group = []
    if position != len(text):
        raise ValueError(f"{text!r} is not a Slurm node list")
    yield group


def _names(group: list[list[str]]) -> Iterator[str]:
    for parts in product(*group):
        yield "".join(parts)


def _range(part: str, text: str) -> list[str]:
    low, dash, high = part.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise ValueError(f"{text!r} is not a Slurm node list: {part!r} is not a range")
    last = high if dash else low
    return [f"{number:0{len(low)}}" for number in range(int(low), int(last) + 1)]
