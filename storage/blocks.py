"""Bytes in blocks, each with its digest; a block is also the unit of damage reports.

See `output` and `input` for the files. Standard library and xxhash only.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

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
    """Results in the order of the items. Raises what `work` does.

    With fewer threads where no more can be started, with none in the thread that asks: the system
    may have too many of them, and a save is wanted all the same.
    """
    running: deque[Future[B]] = deque()
    crew = _Crew(work, threads)
    try:
        for item in items:
            running.append(crew.begin(item))
            if len(running) >= ahead(threads):
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        crew.dismiss()


class _Crew(Generic[A, B]):
    """Threads that do what is begun. Those of `concurrent.futures` are no more once Python ends."""

    def __init__(self, work: Callable[[A], B], most: int) -> None:
        self._work = work
        self._most = most
        self._threads: list[threading.Thread] = []
        self._todo: SimpleQueue[tuple[A, Future[B]] | None] = SimpleQueue()

    def begin(self, item: A) -> Future[B]:
        done: Future[B] = Future()
        if len(self._threads) < self._most:
            self._hire()
        if self._threads:
            self._todo.put((item, done))
        else:
            self._do(item, done)
        return done

    def dismiss(self) -> None:
        """What has begun is done first."""
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _hire(self) -> None:
        # One that nobody has dismissed must not keep Python from its end: it waits for ever.
        thread = threading.Thread(target=self._serve, name="relight-blocks", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # "can't start new thread"
            self._most = len(self._threads)
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        while (task := self._todo.get()) is not None:
            self._do(*task)

    def _do(self, item: A, done: Future[B]) -> None:
        try:
            done.set_result(self._work(item))
        except BaseException as error:  # for who asks for the result
            done.set_exception(error)
