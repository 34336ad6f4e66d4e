"""What in memory shares a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def folds(shape: Sequence[int], strides: Sequence[int], item: int = 1) -> bool:
    """Whether elements of an array may lie in one place; strides in units of which one has `item`.

    True for expanded arrays and sliding windows, false for what slices and transposes leave.
    """
    reach = item - 1
    for by, size in sorted((abs(by), size) for by, size in zip(strides, shape, strict=True)):
        if size > 1 and by <= reach:
            return True
        reach += by * max(0, size - 1)
    return False
