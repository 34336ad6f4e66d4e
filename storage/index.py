"""What is in a shard and where: deflated JSON that lies in its dataset `/index`."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import cast

from . import blocks
from .chunks import Chunked, Stored
from .errors import FormatUnknown
from .kept import Kept, gaps, is_whole, require_fit
from .leaf import Form
from .sealed import Json, field

FORMAT = 4
_DEFLATE = 1  # keys of many arrays shrink to a tenth even so


@dataclass(frozen=True, slots=True)
class Run:
    """The bytes of one array, or of the pack (`array` is None).

    What is not `kept` in earlier shards lies together in the shard, from `at` on. What is `chunked`
    is compressed, and in one file; `at` is where its first chunk is.
    """

    at: int
    size_bytes: int
    array: int | None
    kept: tuple[Kept, ...] = ()
    chunked: Chunked | None = None

    def places(self, block_bytes: int) -> Iterator[tuple[str, Stored]]:
        """Of each block the file beside the shard that has it, empty for the shard, and where."""
        if self.chunked is not None:
            base = self.kept[0].base if self.kept else ""
            for block in range(blocks.count(self.size_bytes, block_bytes)):
                yield base, self.chunked.stored(block, min(block_bytes, self.size_bytes))
            return
        found: dict[int, tuple[str, Stored]] = {}
        for one in self.kept:
            for start in range(one.start, one.stop, block_bytes):
                found[start] = one.base, one.at + start - one.start
        at = self.at
        for begin, stop in gaps(self.kept, self.size_bytes):
            for start in range(begin, stop, block_bytes):
                found[start] = "", at + start - begin
            at += stop - begin
        for start in sorted(found):
            yield found[start]

    def extents(self) -> list[tuple[int, int]]:
        """What it takes in the shard: positions and sizes."""
        if self.chunked is None:
            new_bytes = sum(stop - start for start, stop in gaps(self.kept, self.size_bytes))
            return [(self.at, new_bytes)] if new_bytes else []
        chunks = () if self.kept else self.chunked.chunks
        return [(chunk.at, chunk.size_bytes) for chunk in chunks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A whole shard. `tree` is the state, in which {"array": n} stands for the n-th array.

    Attributes:
        writer: the incarnation's folder name.
        block_bytes: of how many bytes each digest speaks; the last block of a run is shorter.
        packed_below_bytes: smaller arrays lie in the pack, others in datasets of their own.
        arrays: the form of each array, as its number in `forms`.
        borrows: ranks whose shards hold arrays of this rank's state.
        at: where the datasets of the arrays that have one begin in their file, in order; of one
            that is kept in part, where its new blocks do.
        kept: what of them lies in earlier shards, by their place in that order.
        chunked: those of them that are compressed, likewise.
    """

    step: int
    rank: int
    world_size: int
    writer: str
    block_bytes: int
    packed_below_bytes: int
    tree: Json
    borrows: tuple[int, ...]
    forms: tuple[Form, ...]
    arrays: tuple[int, ...]
    at: tuple[int, ...]
    pack_at: int
    pack_bytes: int
    kept: Mapping[int, tuple[Kept, ...]] = attribute(default_factory=dict)
    chunked: Mapping[int, Chunked] = attribute(default_factory=dict)

    @property
    def format(self) -> int:
        """The lowest that says all of it, so that older readers understand what they can."""
        if self._in_parts():
            return 4
        return 3 if self.chunked else 2 if self.kept else 1

    def to_bytes(self) -> bytes:
        body: dict[str, Json] = {
            "format": self.format,
            "step": self.step,
            "rank": self.rank,
            "world_size": self.world_size,
            "writer": self.writer,
            "block_bytes": self.block_bytes,
            "packed_below_bytes": self.packed_below_bytes,
            "pack_at": self.pack_at,
            "pack_bytes": self.pack_bytes,
            "forms": [_form_body(form) for form in self.forms],
            "arrays": list(self.arrays),
            "at": list(self.at),
            "borrows": list(self.borrows),
            "tree": self.tree,
        }
        body |= self._kept_body()
        if self.chunked:
            body["chunked"] = [[place, *one.to_body()] for place, one in self.chunked.items()]
        # Not sorted: the order of a dict's keys is part of the state.
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
        return zlib.compress(text.encode("ascii"), _DEFLATE)

    def _in_parts(self) -> dict[int, tuple[Kept, ...]]:
        """What is kept, but not as a whole in one place."""
        sizes = [self.forms[self.arrays[number]].size_bytes for number in self.own()]
        return {
            place: kept for place, kept in self.kept.items() if not is_whole(kept, sizes[place])
        }

    def _kept_body(self) -> dict[str, Json]:
        """What is kept as a whole in the spelling of format 2, and the rest."""
        in_parts = self._in_parts()
        whole: list[Json] = [
            [place, one.base, one.dataset, one.saves]
            for place, kept in self.kept.items()
            if place not in in_parts
            for one in kept
        ]
        parts: list[Json] = [
            [place, *one.to_body()] for place, kept in in_parts.items() for one in kept
        ]
        members: dict[str, Json] = {"kept": whole, "kept_in_part": parts}
        return {name: rows for name, rows in members.items() if rows}

    def runs(self) -> list[Run]:
        """All that holds values, in the order in which `/digests` speaks of its blocks.

        One more digest follows there, of all bytes that belong to no dataset.
        """
        own = [
            Run(
                at,
                self.forms[self.arrays[number]].size_bytes,
                number,
                self.kept.get(place, ()),
                self.chunked.get(place),
            )
            for place, (at, number) in enumerate(zip(self.at, self.own(), strict=True))
        ]
        return [*own, Run(self.pack_at, self.pack_bytes, None)]

    def own(self) -> list[int]:
        """The arrays that have datasets of their own, in order."""
        large = [form.size_bytes >= self.packed_below_bytes for form in self.forms]
        return [number for number, form in enumerate(self.arrays) if large[form]]

    def places(self) -> dict[int, tuple[Run, int]]:
        """For each array the run in which it lies, and where in that run it begins."""
        *own, pack = self.runs()
        found = {run.array: (run, 0) for run in own if run.array is not None}
        for form, numbers, start in self.packed():
            for place, number in enumerate(numbers):
                found[number] = (pack, start + place * form.size_bytes)
        return found

    def packed(self) -> Iterator[tuple[Form, list[int], int]]:
        """Form by form, the arrays in the pack and where the first of them begins in it."""
        members: dict[int, list[int]] = defaultdict(list)
        for array, number in enumerate(self.arrays):
            members[number].append(array)
        start = 0
        for number, form in enumerate(self.forms):
            if form.size_bytes < self.packed_below_bytes and members[number]:
                yield form, members[number], start
                start += form.size_bytes * len(members[number])

    @classmethod
    def parse(cls, data: bytes) -> Index:
        """Expects bytes whose digest was found right. Raises ValueError or FormatUnknown."""
        try:
            body = json.loads(zlib.decompress(data))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if body.get("format") not in range(1, FORMAT + 1):
            raise FormatUnknown("shard", body.get("format"), FORMAT)
        forms = cast(list[dict[str, Json]], field(body, "forms", list))
        index = cls(
            step=field(body, "step", int),
            rank=field(body, "rank", int),
            world_size=field(body, "world_size", int),
            writer=field(body, "writer", str),
            block_bytes=field(body, "block_bytes", int),
            packed_below_bytes=field(body, "packed_below_bytes", int),
            tree=body["tree"],
            borrows=_numbers(body, "borrows"),
            forms=tuple(_form(item) for item in forms),
            arrays=_numbers(body, "arrays"),
            at=_numbers(body, "at"),
            pack_at=field(body, "pack_at", int),
            pack_bytes=field(body, "pack_bytes", int),
            chunked=_chunked(body) if "chunked" in body else {},
        )
        index = replace(index, kept=_kept(body, dict(enumerate(index.runs()[:-1]))))
        for run in index.runs():
            require_fit(run.kept, run.size_bytes, index.block_bytes)
            if run.chunked is not None:
                run.chunked.require_fit(run.size_bytes, index.block_bytes)
                if run.kept and not is_whole(run.kept, run.size_bytes):
                    raise ValueError("an array is compressed, and kept in part")
        return index


def _kept(body: Mapping[str, Json], runs: Mapping[int, Run]) -> dict[int, tuple[Kept, ...]]:
    """`runs` are those of the index without it."""
    found: dict[int, tuple[Kept, ...]] = {}
    if "kept" in body:
        rows = cast(list[tuple[int, str, int, int]], field(body, "kept", list))
        for place, base, dataset, saves in rows:
            run = runs[place]
            found[place] = (Kept(0, run.size_bytes, base, "t", dataset, 0, run.at, saves),)
    if "kept_in_part" in body:
        for row in cast(list[list[Json]], field(body, "kept_in_part", list)):
            place = cast(int, row[0])
            found[place] = (*found.get(place, ()), Kept.from_body(row[1:]))
    return found


def _chunked(body: Mapping[str, Json]) -> dict[int, Chunked]:
    rows = cast(list[tuple[int, Json, Json]], field(body, "chunked", list))
    return {place: Chunked.from_body(width, chunks) for place, width, chunks in rows}


def _form_body(form: Form) -> dict[str, Json]:
    body: dict[str, Json] = {
        "kind": form.kind,
        "dtype": form.dtype,
        "shape": list(form.shape),
        "bytes": form.size_bytes,
    }
    if form.global_shape is not None:
        body |= {"global_shape": list(form.global_shape), "offset": list(form.offset)}
    return body


def _form(body: Mapping[str, Json]) -> Form:
    is_part = "global_shape" in body
    return Form(
        kind=field(body, "kind", str),
        dtype=field(body, "dtype", str),
        shape=_numbers(body, "shape"),
        size_bytes=field(body, "bytes", int),
        global_shape=_numbers(body, "global_shape") if is_part else None,
        offset=_numbers(body, "offset") if is_part else (),
    )


def _numbers(body: Mapping[str, Json], name: str) -> tuple[int, ...]:
    return tuple(cast(list[int], field(body, name, list)))
