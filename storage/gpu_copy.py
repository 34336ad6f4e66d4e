"""Copies from GPUs into memory of the host: queued on streams of their own, then awaited.

Where that is pinned, GPUs write into it by themselves, as fast as the bus is; else the driver
copies once more. Import this only where torch is loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import torch

from . import torch_state
from .numpy_state import Buffer

_PORTABLE: Final = 1  # cudaHostRegisterPortable: pinned for all GPUs of this process


class GpuPiece(NamedTuple):
    """Bytes start to stop of a tensor, which are to lie from `at` on."""

    at: int
    value: torch.Tensor
    start: int
    stop: int


def is_on_gpu(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


@contextlib.contextmanager
def copying(memory: Buffer, pieces: Iterable[GpuPiece]) -> Iterator[None]:
    """Queues copies, and leaves only when they are done; other memory is copied meanwhile.

    The values are those that the GPUs have come to: what had to be computed first was awaited on
    all streams (see `checkpointer.source_of`).
    """
    streams = Streams()
    try:
        for piece in pieces:
            streams.copy(memory, piece)
        yield
    finally:
        streams.wait()


class Streams:
    """One for each GPU that is copied from, beside that of the program."""

    def __init__(self) -> None:
        self._by_device: dict[torch.device, torch.cuda.Stream] = {}

    def copy(self, memory: Buffer, piece: GpuPiece) -> None:
        """Queues a copy."""
        device = piece.value.device
        if device not in self._by_device:
            self._by_device[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._by_device[device]):
            _queue(memory, piece)

    def wait(self) -> None:
        """Returns when all copies are done."""
        for stream in self._by_device.values():
            stream.synchronize()


def _queue(memory: Buffer, piece: GpuPiece) -> None:
    width = piece.value.element_size()
    data = torch_state.in_order(piece.value, piece.start // width, piece.stop // width)
    target = torch.from_numpy(memory[piece.at + piece.start : piece.at + piece.stop])
    target.copy_(data, non_blocking=True)


def pin(memory: Buffer, device: torch.device) -> bool:
    """Registers memory with CUDA, on a GPU that is in use anyway; False where CUDA refuses."""
    with torch.cuda.device(device):
        cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        done = int(cuda.cudaHostRegister(memory.ctypes.data, len(memory), _PORTABLE)) == 0
        if not done:
            # CUDA remembers the refusal, and would tell of it at the program's next kernel.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=device)
    return done


def unpin(memory: Buffer) -> None:
    """To be called before the memory goes. CUDA may be gone already, at the end of a program."""
    with contextlib.suppress(RuntimeError):
        cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        cuda.cudaHostUnregister(memory.ctypes.data)
