"""Opens one rank's file for reading, past HDF5, and checks every block against its digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from . import blocks
from .errors import CheckpointDamaged
from .index import Index, Run
from .input import Input, way_to_read
from .keys import array_key
from .receipt import Receipt


@dataclass(frozen=True, slots=True)
class Damage:
    """A place whose bytes are not those that were saved. `block` is None for the whole part."""

    array: str
    block: int | None
    reason: str


class Shard:
    """A shard opened for reading: size, index and digests are those of its receipt.

    Raises CheckpointDamaged otherwise. Use as a context manager.
    """

    def __init__(self, path: Path, receipt: Receipt) -> None:
        self.path = path
        try:
            self._input = Input(path)
            self._fd = self._input.fd
            try:
                self.index = self._open(receipt)
            except BaseException:
                self._input.close()
                raise
        except OSError as error:
            raise self.damaged(_unreadable(error)) from error

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._input.close()

    def fill(self, buffers: Iterable[memoryview]) -> None:
        """Reads the index's runs into buffers of their sizes. Raises CheckpointDamaged."""
        runs, size = self.index.runs(), self.index.block_bytes
        places = (
            block
            for run, buffer in zip(runs, buffers, strict=True)
            for block in blocks.split(run.at, buffer, size)
        )
        self._fill(places, (block for run in runs for block in self._blocks(run)))

    def fill_blocks(self, run: Run, first: int, buffer: memoryview) -> None:
        """Reads some blocks of a run, from the first on. Raises CheckpointDamaged."""
        size = self.index.block_bytes
        places = blocks.split(run.at + first * size, buffer, size)
        self._fill(
            places, islice(self._blocks(run), first, first + blocks.count(len(buffer), size))
        )

    def damages(self, advance: Callable[[int], None]) -> Iterator[Damage]:
        """Reads all blocks of the index's runs and yields the bad ones; tells of bytes read."""
        size = self.index.block_bytes
        runs = self.index.runs()
        extents = (
            (run.at + start, min(size, run.size_bytes - start))
            for run in runs
            for start in range(0, run.size_bytes, size)
        )

        def watched() -> Iterator[tuple[int, int]]:
            for at, size_bytes in extents:
                yield at, size_bytes
                advance(size_bytes)

        found = self._input.digests(watched(), way_to_read(self._input))
        yield from self._compare(found, (block for run in runs for block in self._blocks(run)))

    def _fill(self, places: Iterable[blocks.Block], expected: Iterable[_Block]) -> None:
        found = self._input.read(places, way_to_read(self._input))
        for damage in self._compare(found, expected):
            raise self.damaged(damage)

    def _compare(self, found: Iterable[bytes], expected: Iterable[_Block]) -> Iterator[Damage]:
        try:
            for got, block in zip(found, expected, strict=True):
                if got != block.digest:
                    yield Damage(self.name(block.run), block.number, "its digest does not match")
        except OSError as error:
            yield _unreadable(error)

    def _blocks(self, run: Run) -> Iterator[_Block]:
        first = self._first_rows[run.array]
        for number in range(blocks.count(run.size_bytes, self.index.block_bytes)):
            yield _Block(run, number, self._digests[first + number])

    def digests_of(self, run: Run) -> bytes:
        """Those of its blocks, in order."""
        return b"".join(block.digest for block in self._blocks(run))

    def structure_damage(self) -> Damage | None:
        """Checks what belongs to no dataset: HDF5's own bytes. Loading does not depend on them."""
        extents = [(run.at, run.size_bytes) for run in self.index.runs()]
        try:
            if blocks.digest_outside(self._fd, [*extents, *self._own]) == self._digests[-1]:
                return None
        except OSError as error:
            return _unreadable(error)
        return Damage("header", None, "HDF5's structure has changed")

    def name(self, run: Run) -> str:
        return "pack" if run.array is None else array_key(self.index.tree, run.array)

    def damaged(self, damage: Damage) -> CheckpointDamaged:
        return CheckpointDamaged(str(self.path), damage.array, damage.block, damage.reason)

    def _open(self, receipt: Receipt) -> Index:
        size = os.fstat(self._fd).st_size
        if size != receipt.size_bytes:
            reason = f"it has {size} bytes, {receipt.size_bytes} were saved"
            raise self.damaged(Damage("file", None, reason))
        self._own = [
            (receipt.index_at, receipt.index_bytes),
            (receipt.digests_at, receipt.digests_bytes),
        ]
        index, digests = (blocks.read_exactly(self._fd, at, length) for at, length in self._own)
        if blocks.digest(index, digests).hex() != receipt.digest:
            reason = "index and digests are not those of the manifest: changed, or of another save"
            raise self.damaged(Damage("index", None, reason))
        width = blocks.DIGEST_BYTES
        self._digests = [digests[at : at + width] for at in range(0, len(digests), width)]
        try:
            parsed = Index.parse(index)
            runs = parsed.runs()
            counts = [blocks.count(run.size_bytes, parsed.block_bytes) for run in runs]
            if sum(counts) + 1 != len(self._digests):
                raise ValueError("it speaks of other blocks than the digests")
        except (ValueError, KeyError, TypeError) as error:
            reason = f"it cannot be understood: {error}"
            raise self.damaged(Damage("index", None, reason)) from error
        starts = accumulate(counts, initial=0)
        self._first_rows = {run.array: start for run, start in zip(runs, starts, strict=False)}
        return parsed


class _Block(NamedTuple):
    run: Run
    number: int
    digest: bytes


def _unreadable(error: OSError) -> Damage:
    return Damage("file", None, f"it cannot be read: {error.strerror}")
