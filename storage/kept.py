"""What of an array is left in earlier shards, and what is new between that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import Literal, cast

from .blocks import BLOCK_BYTES
from .chunks import Chunked
from .sealed import Json

# HDF5 makes 512 mappings in 50 ms, and 2048 in 1.3 s.
_MOST_STRETCHES = 256

Group = Literal["t", "new"]
_Row = tuple[int, int, str, Group, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """A stretch of whole blocks of an array that lies in an earlier shard.

    Attributes:
        start, stop: which bytes of the array.
        base: the file beside the shard that has them.
        group, dataset: `/<group>/<dataset>` of that file, to which they belong.
        before: how many bytes of that dataset come before them.
        at: where they begin in the file.
        saves: how many saves in a row have left them there.
    """

    start: int
    stop: int
    base: str
    group: Group
    dataset: int
    before: int
    at: int
    saves: int

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start

    def to_body(self) -> list[Json]:
        return list(astuple(self))

    @classmethod
    def from_body(cls, row: Sequence[Json]) -> Kept:
        """Raises ValueError, TypeError."""
        start, stop, base, group, dataset, before, at, saves = cast(_Row, row)
        return cls(start, stop, base, group, dataset, before, at, saves)

    def part(self, start: int, stop: int) -> Kept:
        ahead = start - self.start
        return replace(self, start=start, stop=stop, before=self.before + ahead, at=self.at + ahead)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """An array as far as it lies in files beside the new shard.

    `digests` are those of all its blocks as they were. What is `chunked` lies there as a whole.
    """

    size_bytes: int
    kept: tuple[Kept, ...] = ()
    digests: tuple[bytes, ...] = ()
    chunked: Chunked | None = None

    @property
    def width(self) -> int:
        """Bytes of an element of its dataset."""
        return 1 if self.chunked is None else self.chunked.width

    @property
    def is_whole(self) -> bool:
        """Whether all of it lies together."""
        return is_whole(self.kept, self.size_bytes)

    @property
    def new_bytes(self) -> int:
        return sum(stop - start for start, stop in gaps(self.kept, self.size_bytes))

    def blocks(self) -> list[int]:
        """The numbers of those that are kept."""
        return [
            start // BLOCK_BYTES
            for one in self.kept
            for start in range(one.start, one.stop, BLOCK_BYTES)
        ]

    def only(self, kept: Iterable[Kept]) -> Unchanged:
        return replace(self, kept=tuple(kept))

    def left(self, same: Collection[int]) -> Unchanged:
        """What stays of it where no more than these blocks are as they were.

        Of very many stretches the longest.
        """
        parts = [part for one in self.kept for part in _parts(one, same)]
        longest = sorted(parts, key=lambda part: part.size_bytes, reverse=True)[:_MOST_STRETCHES]
        found = self.only(sorted(longest, key=lambda part: part.start))
        return found.only(()) if found.chunked is not None and not found.is_whole else found


def gaps(kept: Sequence[Kept], size_bytes: int) -> Iterator[tuple[int, int]]:
    """What of an array is not kept: starts and stops, in order."""
    at = 0
    for one in kept:
        if at < one.start:
            yield at, one.start
        at = one.stop
    if at < size_bytes:
        yield at, size_bytes


def is_whole(kept: Sequence[Kept], size_bytes: int) -> bool:
    """Whether all of an array is kept, and lies together."""
    return [(one.start, one.stop) for one in kept] == [(0, size_bytes)]


def bases(arrays: Iterable[Sequence[Kept]]) -> list[str]:
    """The files that have something of the arrays."""
    return sorted({one.base for kept in arrays for one in kept})


def require_fit(kept: Sequence[Kept], size_bytes: int, block_bytes: int) -> None:
    """Raises ValueError unless they are stretches of whole blocks of such an array, in order."""
    at = 0
    for one in kept:
        is_aligned = not one.start % block_bytes and (
            one.stop == size_bytes or not one.stop % block_bytes
        )
        if not (at <= one.start < one.stop <= size_bytes and is_aligned):
            raise ValueError("stretches do not fit their array")
        at = one.stop


def _parts(one: Kept, same: Collection[int]) -> Iterator[Kept]:
    starts = range(one.start, one.stop, BLOCK_BYTES)
    for stays, group in groupby(starts, lambda start: start // BLOCK_BYTES in same):
        if stays:
            found = list(group)
            yield one.part(found[0], min(found[-1] + BLOCK_BYTES, one.stop))
