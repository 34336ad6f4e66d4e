"""What is in a shard and where: the JSON that lies in its dataset `/index`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from .errors import FormatUnknown
from .sealed import Json, field

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One array.

    Attributes:
        kind, dtype, shape: as in `Leaf`.
        size_bytes: length of its bytes, 0 for an array without elements.
        at: position in the file of an array with a dataset of its own, in the pack otherwise.
        packed: whether it lies in the pack.
        global_shape, offset: the array of which it is a box, and where that box begins.
    """

    kind: str
    dtype: Json
    shape: tuple[int, ...]
    size_bytes: int
    at: int
    packed: bool
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]

    def to_body(self) -> dict[str, Json]:
        """Without the box when it is the whole array."""
        body: dict[str, Json] = {
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "bytes": self.size_bytes,
            "pack" if self.packed else "at": self.at,
        }
        if self.global_shape != self.shape:
            body |= {"global_shape": list(self.global_shape), "offset": list(self.offset)}
        return body

    @classmethod
    def from_body(cls, body: Mapping[str, Json]) -> Entry:
        packed = "pack" in body
        shape = _sizes(body, "shape")
        boxed = "global_shape" in body
        return cls(
            kind=field(body, "kind", str),
            dtype=body["dtype"],
            shape=shape,
            size_bytes=field(body, "bytes", int),
            at=field(body, "pack" if packed else "at", int),
            packed=packed,
            global_shape=_sizes(body, "global_shape") if boxed else shape,
            offset=_sizes(body, "offset") if boxed else (0,) * len(shape),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes that lie together in the file: those of one array, or the pack (`entry` is None)."""

    at: int
    size_bytes: int
    entry: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A whole shard. `tree` is the state, in which {"array": n} stands for `entries[n]`.

    Attributes:
        writer: the incarnation's folder name.
        block_bytes: of how many bytes each digest speaks; the last block of a run is shorter.
    """

    step: int
    rank: int
    world_size: int
    writer: str
    block_bytes: int
    tree: Json
    entries: tuple[Entry, ...]
    pack_at: int
    pack_bytes: int

    def to_bytes(self) -> bytes:
        body: dict[str, Json] = {
            "format": FORMAT,
            "step": self.step,
            "rank": self.rank,
            "world_size": self.world_size,
            "writer": self.writer,
            "block_bytes": self.block_bytes,
            "pack_at": self.pack_at,
            "pack_bytes": self.pack_bytes,
            "arrays": [entry.to_body() for entry in self.entries],
            "tree": self.tree,
        }
        # Not sorted: the order of a dict's keys is part of the state.
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")

    def runs(self) -> list[Run]:
        """All that holds values, in the order in which `/digests` speaks of its blocks.

        One more digest follows there, of all bytes that belong to no dataset.
        """
        own = [
            Run(entry.at, entry.size_bytes, number)
            for number, entry in enumerate(self.entries)
            if not entry.packed
        ]
        return [*own, Run(self.pack_at, self.pack_bytes, None)]

    @classmethod
    def parse(cls, data: bytes) -> Index:
        """Expects bytes whose digest was found right. Raises ValueError or FormatUnknown."""
        body = json.loads(data)
        if body.get("format") != FORMAT:
            raise FormatUnknown("shard", body.get("format"), FORMAT)
        arrays = cast(list[dict[str, Json]], body["arrays"])
        return cls(
            step=field(body, "step", int),
            rank=field(body, "rank", int),
            world_size=field(body, "world_size", int),
            writer=field(body, "writer", str),
            block_bytes=field(body, "block_bytes", int),
            tree=body["tree"],
            entries=tuple(Entry.from_body(item) for item in arrays),
            pack_at=field(body, "pack_at", int),
            pack_bytes=field(body, "pack_bytes", int),
        )


def _sizes(body: Mapping[str, Json], name: str) -> tuple[int, ...]:
    return tuple(cast(list[int], field(body, name, list)))
