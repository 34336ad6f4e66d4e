"""Pieces of tensors on GPUs for who writes them at once: each comes while the one before is used.

A rank whose steps wait for a save has no staging area to copy into. So each thread that writes has
two pinned buffers: a GPU fills one of them while what is in the other goes through the digest to
the disk. Where CUDA refuses to pin, the driver copies once more. Import this only where torch is
loaded.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Final, cast

import numpy as np
import torch

from . import content, gpu_copy
from .blocks import BLOCK_BYTES
from .leaf import Form
from .numpy_state import Buffer
from .page_memory import PIECE_BYTES, in_huge_pages

BUFFER_BYTES: Final = 2 * PIECE_BYTES


class GpuPieces:
    """Gives pieces like `content.piece`; what it gave holds until its thread asks again.

    Use as a context manager: in the end no thread may be asking, and the memory is given back.
    """

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[_Buffers] = []

    def __enter__(self) -> GpuPieces:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with ExitStack() as closing:  # a GPU that fails for one may fail for all
            for buffers in self._all:
                closing.callback(buffers.close)

    def piece(self, form: Form, value: object, start: int, stop: int) -> memoryview:
        """Bytes start to stop of an array, which lie in one BUFFER_BYTES of it."""
        if not gpu_copy.is_on_gpu(value):
            return content.piece(form, value, start, stop)
        tensor = cast(torch.Tensor, value)
        if not hasattr(self._own, "buffers"):
            self._own.buffers = _Buffers(tensor.device)
            self._all.append(self._own.buffers)
        buffers: _Buffers = self._own.buffers
        return buffers.piece(tensor, form.size_bytes, start, stop)


class _Buffers:
    """Two, of one thread: even parts of a tensor go into the first, odd ones into the other.

    A block has an even number of parts, and what follows a block is for another thread.
    """

    def __init__(self, device: torch.device) -> None:
        self._memory: Buffer = np.frombuffer(in_huge_pages(2 * BUFFER_BYTES), np.uint8)
        self._pinned = gpu_copy.pin(self._memory, device)
        self._streams = gpu_copy.Streams()
        self._there: tuple[torch.Tensor, int] | None = None
        self._coming: tuple[torch.Tensor, int] | None = None

    def piece(self, value: torch.Tensor, size_bytes: int, start: int, stop: int) -> memoryview:
        part = start // BUFFER_BYTES
        if not _same(self._there, value, part):
            if not _same(self._coming, value, part):
                self._ask(value, size_bytes, part)
            self._streams.wait()
            self._there, self._coming = (value, part), None
            behind = (part + 1) * BUFFER_BYTES
            if behind < size_bytes and behind % BLOCK_BYTES:
                self._ask(value, size_bytes, part + 1)
        at = self._at(part)
        return self._memory[at + start : at + stop].data

    def _ask(self, value: torch.Tensor, size_bytes: int, part: int) -> None:
        start = part * BUFFER_BYTES
        stop = min(start + BUFFER_BYTES, size_bytes)
        self._streams.copy(self._memory, gpu_copy.GpuPiece(self._at(part), value, start, stop))
        self._coming = value, part

    def _at(self, part: int) -> int:
        """Where byte 0 of the tensor would lie, for this part to be in its buffer."""
        return (part % 2 - part) * BUFFER_BYTES

    def close(self) -> None:
        try:
            self._streams.wait()  # a write that failed has left one behind
        finally:
            if self._pinned:
                gpu_copy.unpin(self._memory)


def _same(known: tuple[torch.Tensor, int] | None, value: torch.Tensor, part: int) -> bool:
    return known is not None and known[0] is value and known[1] == part
