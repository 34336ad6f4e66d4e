"""Runs of elements of an array that does not lie in order in memory, as boxes of its indices."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

Tile = tuple[int | slice, ...]


def cover(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Tile]:
    """Indices whose elements, in C order and one after the other, are those of start to stop.

    At most two per axis and one more, so a run is copied by few large strokes.
    """
    if start >= stop:
        return
    if len(shape) <= 1:
        yield (slice(start, stop),) if shape else ()
        return
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row
    if first > last:
        yield from _in_row(shape, first - 1, start, stop)
        return
    if start < first * row:
        yield from _in_row(shape, first - 1, start, first * row)
    if first < last:
        yield (slice(first, last),)
    if last * row < stop:
        yield from _in_row(shape, last, last * row, stop)


def _in_row(shape: tuple[int, ...], number: int, start: int, stop: int) -> Iterator[Tile]:
    before = number * prod(shape[1:])
    for tile in cover(shape[1:], start - before, stop - before):
        yield (number, *tile)
