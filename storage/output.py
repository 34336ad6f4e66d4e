"""A file that takes blocks past the page cache where that is the faster way.

A direct write spends a fraction of the processor time of a buffered one and runs at a steady pace;
it wants memory, position and length in whole pages. All passes through a buffer in a huge page, a
piece at a time, which is small enough to stay in the processor's cache, where the digest is made:
also what begins at a page in memory, as staged states do, whose pages are small ones. So does what
is written the buffered way: the program may change its memory meanwhile, and the digest has to be
that of the bytes in the file. What is no whole page takes that way, and no page is written both
ways.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from .blocks import BLOCK_BYTES, PAGE_BYTES, in_parallel
from .page_memory import PIECE_BYTES, Buffers, in_huge_pages
from .progress import Advance, ignored
from .way import TRIAL_BYTES, USUAL, WORTH_A_TRIAL_BYTES, Way, fastest, remembered


class Run(NamedTuple):
    """Bytes that lie together in the file, and a call that gives those from start to stop."""

    at: int
    size_bytes: int
    piece: Callable[[int, int], memoryview]


class _Block(NamedTuple):
    run: Run
    start: int
    stop: int


class Output:
    """An existing file, open for writing and reading. Use as a context manager."""

    def __init__(self, path: Path, way: Way) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._direct = _open_direct(path) if way.direct else None
        self._threads = way.threads
        self._buffers = Buffers()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._direct is not None:
            os.close(self._direct)

    def write(self, runs: Iterable[Run], advance: Advance = ignored) -> list[bytes]:
        """Writes runs and returns the digests of their blocks, in order. Raises OSError.

        Tells of the bytes that are written, from any thread.

        Runs are taken from the iterable as the disk gets on with them, so what is made on the way
        is never in memory all at once.
        """
        blocks = (
            _Block(run, start, min(start + BLOCK_BYTES, run.size_bytes))
            for run in runs
            for start in range(0, run.size_bytes, BLOCK_BYTES)
        )
        return list(in_parallel(partial(self._put, advance), blocks, self._threads))

    def reserve(self, size_bytes: int) -> None:
        """Asks for the space now, so that a full disk shows before the first byte.

        Also ext4 lets several threads write at once only where the space is reserved. This is
        fallocate(2) itself, because posix_fallocate writes into every page where the file system
        has no such call; there the writes will have to tell. Raises OSError.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(self.fd, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))

    def _put(self, advance: Advance, block: _Block) -> bytes:
        run, start, stop = block
        state = xxhash.xxh3_128()
        while start < stop:
            data = self._copy(run.piece(start, min(start + PIECE_BYTES, stop)))
            state.update(data)
            self._write(run.at + start, data)
            start += len(data)
            advance(len(data))
        return state.digest()

    def _write(self, at: int, data: memoryview) -> None:
        if self._direct is not None and at % PAGE_BYTES == 0 and len(data) >= PAGE_BYTES:
            written = _write_direct(self._direct, at, data[: len(data) & -PAGE_BYTES])
            at, data = at + written, data[written:]
        while data:
            written = os.pwrite(self.fd, data, at)
            at, data = at + written, data[written:]

    def _copy(self, data: memoryview) -> memoryview:
        """In this thread's own buffer. numpy lets other threads run meanwhile."""
        copy = self._buffers.own()[: len(data)]
        np.copyto(np.frombuffer(copy, np.uint8), np.frombuffer(data, np.uint8))
        return copy


def way_to_write(folder: Path, size_bytes: int) -> Way:
    """The way for that many bytes in a folder, by a trial when it is worth one."""
    if size_bytes < WORTH_A_TRIAL_BYTES:
        return USUAL
    return remembered("write", folder) or _tried(folder)


def _tried(folder: Path) -> Way:
    path = folder / f".trial-{secrets.token_hex(8)}"
    sample = in_huge_pages(BLOCK_BYTES)
    sample[:] = secrets.token_bytes(len(sample))

    def attempt(number: int, way: Way) -> None:
        with Output(path, way) as output:
            start = number * TRIAL_BYTES
            output.reserve(start + TRIAL_BYTES)
            run = Run(start, TRIAL_BYTES, lambda start, stop: sample[: stop - start])
            output.write([run])
            os.fsync(output.fd)

    try:
        path.touch(0o600, exist_ok=False)
        return fastest("write", folder, attempt)
    except OSError:
        return USUAL
    finally:
        path.unlink(missing_ok=True)


def run_of(at: int, data: bytes | memoryview) -> Run:
    """A run of bytes that are all there."""
    view = memoryview(data)
    return Run(at, len(view), lambda start, stop: view[start:stop])


def _open_direct(path: Path) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EINVAL:  # tmpfs before Linux 6.6, some FUSE file systems
            return None
        raise


def _write_direct(fd: int, at: int, data: memoryview) -> int:
    """How many bytes were written; none where the file system wants a coarser alignment."""
    try:
        return os.pwrite(fd, data, at)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 0
        raise
