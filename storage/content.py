"""The bytes of arrays of every kind, and the way back. See `numpy_state` and `torch_state`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np

from . import numpy_state
from .leaf import Form, Leaf
from .numpy_state import Array, Buffer

if TYPE_CHECKING:
    import torch

Piece = Callable[[Form, object, int, int], memoryview]


def is_on_gpu(value: object) -> bool:
    """Whether an array lies there; torch is not loaded to find out."""
    if "torch" not in sys.modules:
        return False
    from . import gpu_copy

    return gpu_copy.is_on_gpu(value)


def piece(form: Form, value: object, start: int, stop: int) -> memoryview:
    """Bytes start to stop of an array; a view of its memory where they lie in order there."""
    if isinstance(value, memoryview):  # from a snapshot
        return value[start:stop]
    count = max(1, int(np.prod(form.shape, dtype=np.int64)))
    width = form.size_bytes // count
    first, last = start // width, -(-stop // width)
    data = _elements(form, value, first, last)
    return data[start - first * width : stop - first * width]


def in_order(value: object) -> object:
    """The bytes of an array that lie in order on the CPU; any other one as it is.

    `piece` takes both. torch lets go of the interpreter in every call, and has to get it back.
    """
    if isinstance(value, np.ndarray):
        return numpy_state.elements(value, 0, value.size) if value.flags.c_contiguous else value
    if "torch" in sys.modules and not is_on_gpu(value):
        from . import torch_state

        if isinstance(value, torch_state.Tensor):
            data = torch_state.memory(value)
            return value if data is None else data.data
    return value


@contextmanager
def pieces(leaves: Iterable[Leaf]) -> Iterator[Piece]:
    """`piece` for who reads these arrays one piece after the other, in any number of threads.

    What it gives of an array on a GPU holds until its thread asks again.
    """
    if not any(is_on_gpu(leaf.value) for leaf in leaves):
        yield piece
        return
    from .gpu_pieces import GpuPieces

    with GpuPieces() as ahead:
        yield ahead.piece


def gather(form: Form, leaves: Sequence[Leaf]) -> bytes | memoryview:
    """All bytes of arrays of one form, one array after the other."""
    if isinstance(leaves[0].value, memoryview):
        return b"".join(cast(memoryview, leaf.value) for leaf in leaves)
    if form.kind == "torch":
        from . import torch_state

        return torch_state.gather([cast("torch.Tensor", leaf.value) for leaf in leaves])
    return numpy_state.gather([cast(Array, leaf.value) for leaf in leaves])


def separate(form: Form, data: Buffer) -> list[object]:
    """The arrays of one form that lie one after the other in `data`, copied. Raises ValueError."""
    if form.kind == "torch":
        from . import torch_state

        return torch_state.separate(form, data)
    if form.kind == "bytes":
        return [row.tobytes() for row in data.reshape(-1, form.size_bytes)]
    _require_numpy(form)
    return numpy_state.separate(form, data)


def rebuild(form: Form, data: Buffer) -> object:
    """The array over `data`, which it owns from now on. Raises ValueError."""
    if form.kind == "torch":
        from . import torch_state

        return torch_state.rebuild(form, data)
    if form.kind == "bytes":
        return data.tobytes()
    _require_numpy(form)
    return numpy_state.rebuild(form, data)


def _elements(form: Form, value: object, first: int, last: int) -> memoryview:
    if form.kind == "torch":
        from . import torch_state

        return torch_state.elements(cast("torch.Tensor", value), first, last)
    return numpy_state.elements(cast(Array, value), first, last)


def _require_numpy(form: Form) -> None:
    if form.kind not in ("numpy", "scalar"):
        raise ValueError(f"arrays of kind {form.kind!r} are unknown")
