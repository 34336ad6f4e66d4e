"""Memory that a program shares with its writer: made once, used for every save.

It is a memfd(2): it has no name, so nothing of it can be left behind when processes are killed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from .numpy_state import Buffer

if TYPE_CHECKING:
    import torch

_GROWTH_BYTES = 16 << 20
_MADV_POPULATE_WRITE = 23


class Staging:
    """One side's view of the memory behind the file descriptor ``fd``."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory: Buffer = np.empty(0, np.uint8)
        self._pinned: bool | None = None  # once it was tried

    @classmethod
    def create(cls) -> Staging:
        return cls(os.memfd_create("relight-staging"))

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    def populate(self, size_bytes: int) -> None:
        """Makes pages be there now: to copy into fresh ones takes several times as long.

        Other threads go on meanwhile. Kernels before 5.14 do nothing.
        """
        address, length = ctypes.c_void_p(self._memory.ctypes.data), ctypes.c_size_t(size_bytes)
        ctypes.CDLL(None).madvise(address, length, _MADV_POPULATE_WRITE)

    def memory(self, size_bytes: int) -> Buffer:
        """At least so many bytes, with what is in them. Raises OSError."""
        if size_bytes > self.size_bytes:
            # And room for what an order says behind its arrays: another mapping would cost a
            # page fault for every page again.
            size_bytes = (size_bytes // _GROWTH_BYTES + 2) * _GROWTH_BYTES
            if os.fstat(self.fd).st_size < size_bytes:
                os.ftruncate(self.fd, size_bytes)
            self._unpin()
            self._memory = np.frombuffer(mmap.mmap(self.fd, size_bytes), np.uint8)
        return self._memory

    def pin(self, device: torch.device) -> bool:
        """Lets GPUs write by themselves into all that there is; whether they can."""
        if self._pinned is None:
            from . import gpu_copy

            self._pinned = gpu_copy.pin(self._memory, device)
        return self._pinned

    def _unpin(self) -> None:
        if self._pinned:
            from . import gpu_copy

            gpu_copy.unpin(self._memory)
        self._pinned = None

    def close(self) -> None:
        self._unpin()
        self._memory = np.empty(0, np.uint8)
        os.close(self.fd)
