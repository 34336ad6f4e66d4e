"""torch tensors as raw bytes and back, bit for bit. Import this only where torch is wanted."""

from __future__ import annotations

from typing import TypeGuard, cast

import numpy as np
import torch

from .leaf import Leaf
from .numpy_state import Buffer
from .sealed import Json

_DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
]
_NAMES = {getattr(torch, name): name for name in _DTYPES if hasattr(torch, name)}


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor)


def to_leaf(value: torch.Tensor) -> Leaf:
    """Only the elements, wherever they lie; they come back on the CPU and without gradient.

    Raises ValueError with the reason when the tensor is no plain one.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise ValueError(f"tensors of type {_type_name(value)} are not supported yet")
    if value.layout != torch.strided or value.is_nested:
        raise ValueError(f"tensors of layout {value.layout} are not supported yet")
    if value.dtype not in _NAMES:
        raise ValueError(f"tensors of dtype {value.dtype} are not supported yet")
    if value.is_meta:
        raise ValueError("tensors on the meta device have no values")
    return Leaf(
        kind="torch",
        dtype=_NAMES[value.dtype],
        shape=tuple(value.shape),
        size_bytes=value.numel() * value.element_size(),
        content=lambda: _raw(value),
    )


def same_memory(value: torch.Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are the same elements of the same memory."""
    if value.layout != torch.strided or value.is_meta or value.numel() == 0:
        return ("torch", id(value))
    return (
        "torch",
        str(value.device),
        value.data_ptr(),
        tuple(value.shape),
        value.stride(),
        value.dtype,
        value.is_conj(),
        value.is_neg(),
    )


def rebuild(dtype: Json, shape: tuple[int, ...], data: Buffer) -> torch.Tensor:
    """The tensor over `data`, which it owns from now on. Raises ValueError on a misfit."""
    if dtype not in _NAMES.values():
        raise ValueError(f"this torch, {torch.__version__}, has no dtype {dtype!r}")
    wanted = cast(torch.dtype, getattr(torch, cast(str, dtype)))
    if data.nbytes == 0:
        return torch.empty(shape, dtype=wanted)
    try:
        return torch.from_numpy(data).view(wanted).reshape(shape)
    except RuntimeError as error:
        raise ValueError(f"{data.nbytes} bytes do not make {shape} of {dtype}") from error


def _raw(value: torch.Tensor) -> memoryview:
    if value.numel() == 0:
        return memoryview(b"")
    plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    data = cast("np.ndarray[tuple[int], np.dtype[np.uint8]]", plain.view(torch.uint8).numpy())
    return data.data


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
