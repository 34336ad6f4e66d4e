"""torch tensors as raw bytes and back, bit for bit. Import this only where torch is wanted."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import cast

import numpy as np
import torch

from .leaf import Form
from .numpy_state import Buffer, in_pages
from .tiles import cover

Tensor = torch.Tensor
Size = torch.Size
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
_ALIGNED = 16
_NAMES = {getattr(torch, name): name for name in _DTYPES if hasattr(torch, name)}


def is_dtensor(kind: type) -> bool:
    """Without loading torch's distributed part, which takes a while, when nobody has."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and issubclass(kind, module.DTensor)


def form_key(value: torch.Tensor) -> Hashable:
    """Equal only for tensors of equal form, and quickly made; None where that cannot be said."""
    if value.is_nested:
        return None
    return (type(value), value.layout, value.device, value.dtype, value.shape)


def form_of(value: torch.Tensor) -> Form:
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
    return Form(
        kind="torch",
        dtype=_NAMES[value.dtype],
        shape=tuple(value.shape),
        size_bytes=value.numel() * value.element_size(),
    )


def same_memory(value: torch.Tensor) -> Hashable:
    """Equal for two tensors that are the same elements of the same memory."""
    if value.layout != torch.strided or value.is_meta or value.is_nested or value.numel() == 0:
        return ("torch", id(value))
    return (
        "torch",
        value.device,
        value.data_ptr(),
        value.shape,
        value.stride(),
        value.dtype,
        value.is_conj(),
        value.is_neg(),
    )


def elements(value: torch.Tensor, start: int, stop: int) -> memoryview:
    """Some elements in C order as bytes; copies only when they do not lie so on the CPU."""
    return _bytes(in_order(value, start, stop))


def in_order(value: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """The same as a flat tensor of bytes on the device of the value."""
    plain = value.detach()
    if plain.is_contiguous():
        plain = plain.reshape(-1)
    tiles = [_ordered(plain[index]) for index in cover(tuple(plain.shape), start, stop)]
    return (tiles[0] if len(tiles) == 1 else torch.cat(tiles)).view(torch.uint8)


def memory(value: torch.Tensor) -> Buffer | None:
    """Its bytes, to be written over; None where they do not lie in C order on the CPU."""
    plain = value.detach()
    if not plain.is_cpu or not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
        return None
    if plain.untyped_storage().nbytes() < plain.nbytes:  # given back for now, as FSDP does
        return None
    return cast(Buffer, plain.reshape(-1).view(torch.uint8).numpy())


def extent(value: torch.Tensor) -> tuple[int, int]:
    """Where its memory begins and ends, with what lies in between."""
    if value.numel() == 0:
        return 0, 0
    start = value.data_ptr()
    last = sum((n - 1) * by for n, by in zip(value.shape, value.stride(), strict=True))
    return start, start + (last + 1) * value.element_size()


def gather(values: Sequence[torch.Tensor]) -> memoryview:
    """All elements of tensors of one form, one tensor after the other."""
    with torch.no_grad():
        return _bytes(_ordered(torch.stack(list(values))).view(torch.uint8))


def separate(form: Form, data: Buffer) -> list[object]:
    """Tensors of one form that lie one after the other in `data`, each with its own memory."""
    if data.ctypes.data % _ALIGNED:  # torch copies complex128 as if it could not lie so, and dies
        aligned = in_pages(data.nbytes)
        aligned[:] = data
        data = aligned
    rows = torch.from_numpy(data).view(_dtype(form)).reshape(-1, *form.shape)
    return [row.clone() for row in rows.unbind()]


def rebuild(form: Form, data: Buffer) -> torch.Tensor:
    """The tensor over `data`, which it owns from now on. Raises ValueError on a misfit."""
    dtype = _dtype(form)
    if data.nbytes == 0:
        return torch.empty(form.shape, dtype=dtype)
    try:
        return torch.from_numpy(data).view(dtype).reshape(form.shape)
    except RuntimeError as error:
        raise ValueError(f"{data.nbytes} bytes do not make {form.shape} of {dtype}") from error


def _dtype(form: Form) -> torch.dtype:
    if form.dtype not in _NAMES.values():
        raise ValueError(f"this torch, {torch.__version__}, has no dtype {form.dtype!r}")
    return cast(torch.dtype, getattr(torch, form.dtype))


def _ordered(value: torch.Tensor) -> torch.Tensor:
    return value.resolve_conj().resolve_neg().contiguous().reshape(-1)


def _bytes(flat: torch.Tensor) -> memoryview:
    data = cast("np.ndarray[tuple[int], np.dtype[np.uint8]]", flat.cpu().numpy())
    return data.data


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
