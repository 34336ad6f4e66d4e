"""Bytes in blocks, each with its digest; a block is also the unit of damage reports.

See `output` and `input` for the files. Standard library and xxhash only.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import xxhash

BLOCK_BYTES = 8 << 20
DIGEST_BYTES = 16
PAGE_BYTES = 4096

A = TypeVar("A")
B = TypeVar("B")


def count(size_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many blocks a run of bytes has; none when it is empty."""
    return -(-size_bytes // block_bytes)


def digest(*parts: bytes | memoryview) -> bytes:
    """xxh3-128, most significant byte first."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return state.digest()


def read_exactly(fd: int, at: int, size_bytes: int) -> bytes:
    """Raises OSError when the file ends before."""
    data = bytearray(size_bytes)
    fill(fd, at, memoryview(data))
    return bytes(data)


def fill(fd: int, at: int, rest: memoryview) -> None:
    """Raises OSError when the file ends before."""
    while rest:
        got = os.preadv(fd, [rest], at)
        if got == 0:
            raise OSError(errno.EIO, "the file is shorter than it was")
        at, rest = at + got, rest[got:]


def digest_outside(fd: int, extents: Iterable[tuple[int, int]]) -> bytes:
    """The digest of all bytes of a file but those of the extents, each (position, size)."""
    state = xxhash.xxh3_128()
    position = 0
    for at, size_bytes in [*sorted(extents), (os.fstat(fd).st_size, 0)]:
        for start in range(position, at, BLOCK_BYTES):
            state.update(read_exactly(fd, start, min(at - start, BLOCK_BYTES)))
        position = max(position, at + size_bytes)
    return state.digest()


def ahead(threads: int) -> int:
    """How many items `in_parallel` has taken at most whose results it has not given yet."""
    return 2 * threads


def in_parallel(work: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """Results in the order of the items. Raises what `work` does."""
    running: deque[Future[B]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="relight-blocks") as pool:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) >= ahead(threads):
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
