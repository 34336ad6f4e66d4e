"""Opens one rank's file for reading, past HDF5, and checks every block against its digest."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from . import blocks
from .chunks import Stored
from .condition import OUR_OWN
from .errors import CheckpointDamaged, RestoreRefused
from .index import Index, Run
from .input import Input
from .keys import array_key
from .node_reads import BlockPlace
from .receipt import Receipt
from .way import in_memory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """A place whose bytes are not those that were saved. `block` is None for the whole part."""

    array: str
    block: int | None
    reason: str


class Shard:
    """A shard opened for reading: size, index and digests are those of its receipt.

    All raise CheckpointDamaged otherwise, and OSError where this process can open no file. Use as a
    context manager.
    """

    def __init__(self, path: Path, receipt: Receipt) -> None:
        self.path = path
        self._bases: dict[str, Input] = {}
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
        for file in (self._input, *self._bases.values()):
            file.close()

    @cached_property
    def in_memory(self) -> bool:
        """Whether it needs neither disk nor network to be read, as far as that can be told."""
        return in_memory(self.path)

    def fill(
        self,
        wanted: Iterable[tuple[Run, memoryview]],
        done: Container[bytes],
        advance: Callable[[int], None],
    ) -> None:
        """Reads runs into buffers of their sizes, but for blocks whose digests are in `done`.

        Tells of the bytes of each block that it reads. Raises CheckpointDamaged, RestoreRefused.
        """
        placed = (one for run, buffer in wanted for one in self._placed(run, buffer))
        self._fill((one for one in placed if one[0].digest not in done), advance)

    def places(self, run: Run, buffer: memoryview) -> Iterator[tuple[bytes, BlockPlace]]:
        """The blocks of a run by their digests, for `node_reads`. Raises CheckpointDamaged."""
        for block, data in self._placed(run, buffer):
            file = self._file(block.base)
            yield block.digest, BlockPlace(file.path, block.stored, data, file.way)

    def fill_blocks(self, run: Run, first: int, buffer: memoryview) -> None:
        """Reads some blocks of a run, from the first on. Raises CheckpointDamaged."""
        self._fill(self._placed(run, buffer, first), lambda _: None)

    def damages(self, advance: Callable[[int], None], *, shared: bool = True) -> Iterator[Damage]:
        """Reads all blocks of the index's runs and yields the bad ones; tells of bytes read.

        Without `shared`, only those in this very file.
        """

        def watched(blocks: Iterable[_Block]) -> Iterator[tuple[Stored, int]]:
            for block in blocks:
                yield block.stored, block.size_bytes
                advance(block.size_bytes)

        wanted = (block for run in self.index.runs() for block in self._blocks(run))
        for base, found in _by_file((block, None) for block in wanted if shared or not block.base):
            expected = [block for block, _ in found]
            try:
                file = self._file(base)
            except CheckpointDamaged as error:
                yield Damage(error.array, error.block, error.reason)
                continue
            yield from self._compare(file.digests(watched(expected), file.way), expected)

    def _placed(
        self, run: Run, buffer: memoryview, first: int = 0
    ) -> Iterator[tuple[_Block, memoryview]]:
        """The blocks of a run from the first on, each with where it goes in the buffer."""
        size = self.index.block_bytes
        starts = range(0, len(buffer), size)
        expected = islice(self._blocks(run), first, first + len(starts))
        for start, block in zip(starts, expected, strict=True):
            yield block, buffer[start : start + size]

    def _fill(
        self, wanted: Iterable[tuple[_Block, memoryview]], advance: Callable[[int], None]
    ) -> None:
        for base, placed in _by_file(wanted):
            found = self._read(self._file(base), placed, advance)
            for damage in self._compare(found, (block for block, _ in placed)):
                raise self.damaged(damage)

    @staticmethod
    def _read(
        file: Input, placed: Sequence[tuple[_Block, memoryview]], advance: Callable[[int], None]
    ) -> Iterator[bytes]:
        digests = file.read(((block.stored, data) for block, data in placed), file.way)
        for digest, (block, data) in zip(digests, placed, strict=True):
            yield digest if digest == block.digest else _read_apart(file, block, data)
            advance(len(data))

    def _file(self, base: str) -> Input:
        """The shard itself, or one that holds arrays for it. Raises CheckpointDamaged."""
        if not base:
            return self._input
        if base not in self._bases:
            try:
                self._bases[base] = Input(self.path.with_name(base))
            except OSError as error:
                reason = f"{base}, which holds some of its arrays: {_unreadable(error).reason}"
                raise self.damaged(Damage("file", None, reason)) from error
        return self._bases[base]

    def _compare(self, found: Iterable[bytes], expected: Iterable[_Block]) -> Iterator[Damage]:
        try:
            for got, block in zip(found, expected, strict=True):
                if got != block.digest:
                    where = f", read from {block.base}" if block.base else ""
                    reason = f"its digest does not match{where}"
                    yield Damage(self.name(block.run), block.number, reason)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise RestoreRefused(str(self.path)) from error
            yield _unreadable(error)

    def _blocks(self, run: Run) -> Iterator[_Block]:
        first, size = self._first_rows[run.array], self.index.block_bytes
        for number, (base, stored) in enumerate(run.places(size)):
            size_bytes = min(size, run.size_bytes - number * size)
            yield _Block(run, number, size_bytes, self._digests[first + number], base, stored)

    def digests_of(self, run: Run) -> list[bytes]:
        """Those of its blocks, in order."""
        first = self._first_rows[run.array]
        return self._digests[first : first + blocks.count(run.size_bytes, self.index.block_bytes)]

    def unverified(self, run: Run, start: int, stop: int, room_bytes: int = 0) -> bytearray:
        """Bytes of a run as they lie there, then zeros up to `room_bytes`. Raises OSError."""
        data = bytearray(max(room_bytes, stop - start))
        blocks.fill(self._fd, run.at + start, memoryview(data)[: stop - start])
        return data

    def structure_damage(self) -> Damage | None:
        """Checks what belongs to no dataset: HDF5's own bytes. Loading does not depend on them."""
        extents = [extent for run in self.index.runs() for extent in run.extents()]
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
        if not all(0 <= at <= at + length <= size for at, length in self._own):
            reason = f"its manifest speaks of places that are not in its {size} bytes"
            raise self.damaged(Damage("index", None, reason))
        index, digests = (blocks.read_exactly(self._fd, at, length) for at, length in self._own)
        if blocks.digest(index, digests).hex() != receipt.digest:
            reason = "index and digests are not those of the manifest: changed, or of another save"
            raise self.damaged(Damage("index", None, reason))
        width = blocks.DIGEST_BYTES
        self._digests = [digests[at : at + width] for at in range(0, len(digests), width)]
        try:
            parsed = Index.parse(index)
            if _whose(parsed) != _whose(receipt):
                raise ValueError("it is of another save, or of another rank")
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


def require_whole(path: Path, receipt: Receipt, *, shared: bool = True) -> None:
    """Reads every byte of a shard, and of what it shares with others. Raises CheckpointDamaged."""
    with Shard(path, receipt) as shard:
        damages = shard.damages(lambda _: None, shared=shared)
        damage = next(damages, None) or shard.structure_damage()
        if damage is not None:
            raise shard.damaged(damage)


def _whose(one: Index | Receipt) -> tuple[int, int, int, str]:
    writer = one.writer if isinstance(one, Index) else one.incarnation.folder
    return one.step, one.rank, one.world_size, writer


class _Block(NamedTuple):
    """Of a run; `base` is the file that has it, empty for the shard."""

    run: Run
    number: int
    size_bytes: int
    digest: bytes
    base: str
    stored: Stored


def _by_file(pairs: Iterable[tuple[_Block, T]]) -> Iterable[tuple[str, list[tuple[_Block, T]]]]:
    found: dict[str, list[tuple[_Block, T]]] = {}
    for block, other in pairs:
        found.setdefault(block.base, []).append((block, other))
    return found.items()


def _read_apart(file: Input, block: _Block, data: memoryview) -> bytes:
    """Reads a block once more: others may write to the program's arrays, which is no damage."""
    own = memoryview(bytearray(len(data)))
    digest = file.fill((block.stored, own), file.way)
    if digest == block.digest:
        data[:] = own
    return digest


def _unreadable(error: OSError) -> Damage:
    """Raises OSError where it is this process that can open no file."""
    if error.errno in OUR_OWN:
        raise error
    return Damage("file", None, f"it cannot be read: {error.strerror}")
