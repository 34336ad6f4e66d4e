"""A file that takes blocks past the page cache where the file system allows it.

A direct write spends half the processor time of a buffered one and runs at a steady pace; it wants
memory, position and length in whole pages. So each block is copied to a page-aligned buffer, its
digest is made there while it is hot, and only what is no whole page takes the buffered way. No page
is written both ways.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from .blocks import BLOCK_BYTES, Block, digest, in_parallel

_PAGE_BYTES = 4096


class Output:
    """An existing file, open for writing and reading. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._direct = _open_direct(path)
        self._buffers = threading.local()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._direct is not None:
            os.close(self._direct)

    def write(self, blocks: Iterable[Block]) -> list[bytes]:
        """Writes blocks of at most BLOCK_BYTES, returns their digests in order. Raises OSError.

        Blocks are taken from the iterable as the disk gets on with them, so what it makes on the
        way is never in memory all at once.
        """
        return list(in_parallel(self._put, blocks))

    def reserve(self, size_bytes: int) -> None:
        """Asks for the space now, so that a full disk shows before the first byte.

        fallocate(2) itself, because posix_fallocate writes into every page where the file system
        has no such call; there the writes will have to tell. Raises OSError.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(self.fd, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))

    def _put(self, block: Block) -> bytes:
        at, data = block
        if self._direct is None or at % _PAGE_BYTES or len(data) < _PAGE_BYTES:
            result = digest(data)
            self._write_buffered(at, data)
            return result
        copy = self._buffer()[: len(data)]
        copy[:] = data
        result = digest(copy)
        whole = len(data) - len(data) % _PAGE_BYTES
        written = _write_direct(self._direct, at, copy[:whole])
        self._write_buffered(at + written, copy[written:])
        return result

    def _write_buffered(self, at: int, data: memoryview) -> None:
        while data:
            written = os.pwrite(self.fd, data, at)
            at, data = at + written, data[written:]

    def _buffer(self) -> memoryview:
        """This thread's own; mmap gives whole pages."""
        if not hasattr(self._buffers, "view"):
            self._buffers.view = memoryview(mmap.mmap(-1, BLOCK_BYTES))
        view: memoryview = self._buffers.view
        return view


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
