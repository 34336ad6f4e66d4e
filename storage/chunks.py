"""Where the chunks of a compressed array lie in their file. One chunk is one block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from . import blocks
from .sealed import Json

WIDTHS = (1, 2, 4, 8)


class Chunk(NamedTuple):
    """What the file holds of a block: `digest` is that of the bytes there, as they are.

    It is compressed unless it is as long as the block. The last block counts as long as the first,
    with zeros behind its end, for HDF5 wants chunks of one size.
    """

    at: int
    size_bytes: int
    digest: bytes


class Packed(NamedTuple):
    """A chunk, and what it takes to make a block of it."""

    chunk: Chunk
    chunk_bytes: int
    width: int


Stored = int | Packed  # of a block: where its bytes begin, or its chunk


@dataclass(frozen=True, slots=True)
class Chunked:
    """A compressed array, whose bytes were shuffled as elements of `width` bytes."""

    width: int
    chunks: tuple[Chunk, ...]

    def stored(self, block: int, chunk_bytes: int) -> Packed:
        return Packed(self.chunks[block], chunk_bytes, self.width)

    def require_fit(self, size_bytes: int, block_bytes: int) -> None:
        """Raises ValueError unless it can be an array of that size: nobody reads more then."""
        most = min(size_bytes, block_bytes)
        if (
            self.width not in WIDTHS
            or size_bytes % self.width
            or len(self.chunks) != blocks.count(size_bytes, block_bytes)
            or not all(0 < chunk.size_bytes <= most for chunk in self.chunks)
        ):
            raise ValueError("chunks do not fit their array")

    def to_body(self) -> list[Json]:
        chunks: list[Json] = [[at, size, digest.hex()] for at, size, digest in self.chunks]
        return [self.width, chunks]

    @classmethod
    def from_body(cls, width: Json, chunks: Json) -> Chunked:
        """Raises ValueError, TypeError."""
        rows = cast(Sequence[tuple[int, int, str]], chunks)
        found = (Chunk(int(at), int(size), bytes.fromhex(digest)) for at, size, digest in rows)
        return cls(cast(int, width), tuple(found))
