"""Which things in memory share a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Extent = tuple[int, int]  # where memory begins and ends
T = TypeVar("T")


def overlapping(things: Iterable[T], extent: Callable[[T], Extent]) -> list[list[T]]:
    """Groups of those whose memory overlaps, one after the other, by address."""
    groups: list[list[T]] = []
    end = 0
    for one in sorted(things, key=extent):
        start, stop = extent(one)
        if not groups or start >= end:
            groups.append([])
        groups[-1].append(one)
        end = max(end, stop)
    return groups
