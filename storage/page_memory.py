"""Memory between a disk and a state: each thread has a piece of it, in one huge page if it may.

A disk takes a request in so many places of memory at most, often 254, and a MiB in pages of 4 KiB
is 256 of them. A piece is small enough to stay in the processor's cache meanwhile.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from contextlib import suppress
from typing import Final

from .blocks import PAGE_BYTES

PIECE_BYTES: Final = 1 << 20
_HUGE_BYTES: Final = 2 << 20


class Buffers:
    """A buffer of PIECE_BYTES for every thread that asks."""

    def __init__(self) -> None:
        self._own = threading.local()

    def own(self) -> memoryview:
        """That of the calling thread, as it left it."""
        if not hasattr(self._own, "view"):
            self._own.view = in_huge_pages(PIECE_BYTES)
        view: memoryview = self._own.view
        return view


def in_huge_pages(size_bytes: int) -> memoryview:
    """Fresh zeros, which begin where a huge page does."""
    room_bytes = -(-size_bytes // _HUGE_BYTES) * _HUGE_BYTES + _HUGE_BYTES
    # Not shared with children, as it is by default: that memory has small pages only.
    memory = mmap.mmap(-1, room_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    start = -_address(view) % _HUGE_BYTES
    return view[start : start + size_bytes]


def begins_at_page(data: memoryview) -> bool:
    """Of memory that can be written."""
    return _address(data) % PAGE_BYTES == 0


def copy(source: memoryview, target: memoryview) -> None:
    """Of as many bytes; other threads run meanwhile."""
    ctypes.memmove(_address(target), _address(source), len(source))


def _address(data: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
