"""Arrays that several ranks hold together: parts of one, or the same one on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A region of an array: where it begins, and its shape. Empty ones are fine."""

    offset: Shape
    shape: Shape

    @property
    def volume(self) -> int:
        return prod(self.shape)

    def fits(self, shape: Shape) -> bool:
        """Whether it is a box of an array of that shape."""
        return len(self.offset) == len(self.shape) == len(shape) and all(
            start >= 0 and size >= 0 and start + size <= whole
            for start, size, whole in zip(self.offset, self.shape, shape, strict=True)
        )

    def common(self, other: Box) -> Box:
        """What lies in both; of volume 0 when that is nothing."""
        starts = tuple(map(max, self.offset, other.offset))
        stops = map(min, self._stops(), other._stops())
        return Box(starts, tuple(max(0, b - a) for a, b in zip(starts, stops, strict=True)))

    def within(self, outer: Box) -> tuple[slice, ...]:
        """The indices of this box in an array that is the outer one."""
        starts = [a - b for a, b in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(a, a + size) for a, size in zip(starts, self.shape, strict=True))

    def _stops(self) -> Shape:
        return tuple(a + size for a, size in zip(self.offset, self.shape, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """In a state: an array that is a box of a larger one, whose other parts other ranks save.

    The parts of one array have the same key on all ranks, and neither gaps nor overlaps.
    """

    array: object
    global_shape: Shape
    offset: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Replicated:
    """In a state: a value whose arrays are the same on all ranks, so that one rank saves each.

    The work is spread over the ranks, which must all have the same keys in the same order.
    """

    value: object


def fault(wanted: Box, saved: Sequence[Box]) -> str:
    """Why boxes do not fill a wanted one exactly once; empty when they do."""
    found = [box for one in saved if (box := wanted.common(one)).volume]
    volume = sum(box.volume for box in found)
    if _overlap(found):
        return "its parts overlap"
    if volume < wanted.volume:
        return f"{wanted.volume - volume} of {wanted.volume} elements are in no part"
    return ""


def _overlap(boxes: list[Box]) -> bool:
    """Sweeps along the first axis, where most arrays are cut."""
    open_boxes: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.offset):
        open_boxes = [
            one for one in open_boxes if not box.offset or one._stops()[0] > box.offset[0]
        ]
        if any(one.common(box).volume for one in open_boxes):
            return True
        open_boxes.append(box)
    return False
