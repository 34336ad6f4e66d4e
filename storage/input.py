"""A file whose blocks are read past the page cache where that is the faster way, and checked."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import xxhash

from . import codec
from .blocks import BLOCK_BYTES, PAGE_BYTES, digest, in_parallel
from .chunks import Packed, Stored
from .page_memory import PIECE_BYTES, Buffers, begins_at_page, copy
from .way import TRIAL_BYTES, USUAL, WORTH_A_TRIAL_BYTES, Way, fastest

Block = tuple[Stored, memoryview]
A = TypeVar("A")


class Input:
    """A file, open for reading. Raises OSError. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._direct: int | None = None
        self._tried_direct = False
        self._buffers = Buffers()
        self._lock = threading.Lock()
        self._readings: list[Generator[bytes, None, None]] = []

    def __enter__(self) -> Input:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # Who stops half way, for damage, leaves threads that read from this very descriptor.
        for reading in self._readings:
            reading.close()
        os.close(self.fd)
        if self._direct is not None:
            os.close(self._direct)

    def fill(self, block: Block, way: Way) -> bytes:
        """Fills one block from its place; as `read`, in the thread that calls."""
        return self._fill(self._direct_fd() if way.direct else None, block)

    def read(self, blocks: Iterable[Block], way: Way) -> Iterator[bytes]:
        """Fills every block from its place and yields the digests of its values, in order.

        That of a block that reaches past the end of the file is empty. Raises OSError.
        """
        return self._each(lambda block: self.fill(block, way), blocks, way.threads)

    def digests(self, extents: Iterable[tuple[Stored, int]], way: Way) -> Iterator[bytes]:
        """The digests of blocks, each (place, size), whose bytes nobody wants to keep."""
        return self._each(lambda extent: self._digest(*extent, way), extents, way.threads)

    def _each(
        self, work: Callable[[A], bytes], items: Iterable[A], threads: int
    ) -> Generator[bytes, None, None]:
        reading = self._reading(work, items, threads)
        self._readings.append(reading)
        return reading

    def _reading(
        self, work: Callable[[A], bytes], items: Iterable[A], threads: int
    ) -> Generator[bytes, None, None]:
        yield from in_parallel(work, items, threads)

    @cached_property
    def way(self) -> Way:
        """The way to read it, by a trial on its own bytes when it is large; asked once."""
        if os.fstat(self.fd).st_size < WORTH_A_TRIAL_BYTES:
            return USUAL

        def attempt(number: int, way: Way) -> None:
            start = number * TRIAL_BYTES
            os.posix_fadvise(self.fd, start, TRIAL_BYTES, os.POSIX_FADV_DONTNEED)
            blocks = range(start, start + TRIAL_BYTES, BLOCK_BYTES)
            deque(self.digests(((at, BLOCK_BYTES) for at in blocks), way), maxlen=0)

        return fastest("read", self.path, attempt)

    def _direct_fd(self) -> int | None:
        with self._lock:
            if not self._tried_direct:
                self._direct = _open_direct(self.path)
                self._tried_direct = True
        return self._direct

    def _fill(self, direct: int | None, block: Block) -> bytes:
        place, data = block
        if isinstance(place, Packed):
            return self._unpack(direct, place, data)
        return self._fill_run(direct, place, data)

    def _digest(self, place: Stored, size_bytes: int, way: Way) -> bytes:
        if isinstance(place, Packed):
            return self.fill((place, memoryview(bytearray(size_bytes))), way)
        direct = self._direct_fd() if way.direct else None
        state = xxhash.xxh3_128()
        for start in range(0, size_bytes, PIECE_BYTES):
            piece = self._buffers.own()[: size_bytes - start]
            if not self._fill_piece(direct, place + start, piece):
                return b""
            state.update(piece)
        return state.digest()

    def _unpack(self, direct: int | None, place: Packed, data: memoryview) -> bytes:
        """No digest where the chunk is not what was written: it is not looked into then."""
        chunk, chunk_bytes, width = place
        packed = memoryview(mmap.mmap(-1, chunk.size_bytes))
        if self._fill_run(direct, chunk.at, packed) != chunk.digest:
            return b""
        if chunk.size_bytes == chunk_bytes:
            data[:] = packed[: len(data)]
        else:
            try:
                codec.unpack(packed, chunk_bytes, width, data)
            except ValueError:
                return b""
        return digest(data)

    def _fill_run(self, direct: int | None, at: int, data: memoryview) -> bytes:
        # A direct read wants whole pages: memory that does not lie so is filled through a buffer.
        in_pages = not data or begins_at_page(data)
        through = direct is not None and at % PAGE_BYTES == 0 and not in_pages
        state = xxhash.xxh3_128()
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            read = self._buffers.own()[: len(piece)] if through else piece
            if not self._fill_piece(direct, at + start, read):
                return b""
            state.update(read)
            if through:
                copy(read, piece)
        return state.digest()

    def _fill_piece(self, direct: int | None, at: int, rest: memoryview) -> bool:
        """Whether the file has so many bytes."""
        whole = len(rest) & -PAGE_BYTES
        if direct is not None and whole and at % PAGE_BYTES == 0 and begins_at_page(rest):
            got = _read_direct(direct, at, rest[:whole])
            at, rest = at + got, rest[got:]
        while rest:
            got = os.preadv(self.fd, [rest], at)
            if got == 0:
                return False
            at, rest = at + got, rest[got:]
        return True


def _open_direct(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EINVAL:  # tmpfs before Linux 6.6, some FUSE file systems
            return None
        raise


def _read_direct(fd: int, at: int, data: memoryview) -> int:
    """How many bytes were read; none where the file system wants a coarser alignment."""
    try:
        return os.preadv(fd, [data], at)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 0
        raise
