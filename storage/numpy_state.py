"""numpy arrays and scalars as raw bytes and back, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from math import prod
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from .blocks import PAGE_BYTES
from .leaf import Form
from .sealed import Json
from .tiles import cover

Array = npt.NDArray[np.generic]
Buffer = npt.NDArray[np.uint8]
_KINDS = "biufcSUVmM"
_BUFFERS = "biufc"  # the kinds that Python's buffer protocol knows
S = TypeVar("S", bound=np.generic)


def form_key(value: Array) -> Hashable:
    """Equal only for arrays of equal form, and quickly made; None where that cannot be said."""
    # numpy calls dtypes equal that differ in metadata, which are refused.
    return (value.dtype, value.shape) if value.dtype.metadata is None else None


def form_of(value: Array | np.generic) -> Form:
    """Raises ValueError with the reason when the dtype cannot be stored exactly."""
    return Form(
        kind="scalar" if isinstance(value, np.generic) else "numpy",
        dtype=describe(value.dtype),
        shape=value.shape,
        size_bytes=value.nbytes,
    )


def same_memory(array: Array) -> Hashable:
    """Equal for two arrays that are the same elements of the same memory."""
    if array.size == 0:
        return ("numpy", id(array))
    start = array.__array_interface__["data"][0]
    return ("numpy", start, array.shape, array.strides, array.dtype)


def memory(value: Array) -> Buffer | None:
    """Its bytes, to be written over; None where they do not lie in C order."""
    if not (value.flags.c_contiguous and value.flags.writeable):
        return None
    return cast(Buffer, np.asarray(value).reshape(-1).view(np.uint8))


def extent(value: Array) -> tuple[int, int]:
    """Where its memory begins and ends, with what lies in between."""
    if value.size == 0:
        return 0, 0
    start = value.__array_interface__["data"][0]
    reach = [(n - 1) * by for n, by in zip(value.shape, value.strides, strict=True)]
    stop = start + sum(one for one in reach if one > 0) + value.itemsize
    return start + sum(one for one in reach if one < 0), stop


def rebuild(form: Form, data: Buffer) -> Array | np.generic:
    """The array over `data`, which it owns from now on. Raises ValueError on a misfit."""
    dtype = undescribe(form.dtype)
    if data.nbytes != prod(form.shape) * dtype.itemsize:
        raise ValueError(f"{data.nbytes} bytes do not make {form.shape} of {dtype}")
    shape = form.shape
    array: Array = data.view(dtype).reshape(shape) if data.nbytes else np.empty(shape, dtype)
    return cast(np.generic, array[()]) if form.kind == "scalar" else array


def describe(dtype: np.dtype[np.generic]) -> str:
    """A dtype as numpy's own file format spells it, fields as JSON. Raises ValueError."""
    if dtype.isbuiltin == 1 and dtype.kind in _KINDS and dtype.metadata is None:
        return dtype.str
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise ValueError(f"arrays of dtype {dtype} hold references, not values")
    described = dtype.str if dtype.names is None else json.dumps(_listed(dtype.descr))
    if dtype.metadata is not None or undescribe(described) != dtype:
        raise ValueError(f"dtype {dtype!r} cannot be described exactly")
    return described


def undescribe(described: str) -> np.dtype[np.generic]:
    """The inverse of `describe`. Raises ValueError or TypeError."""
    fields = _fields(json.loads(described)) if described.startswith("[") else described
    # The stub knows only flat lists of fields.
    return np.lib.format.descr_to_dtype(fields)  # type: ignore[arg-type]


def elements(value: Array | np.generic, start: int, stop: int) -> memoryview:
    """Some elements in C order as bytes; copies only when they do not lie so."""
    array = np.asarray(value)
    if array.flags.c_contiguous:
        return array.reshape(-1)[start:stop].view(np.uint8).data
    copy = np.empty(stop - start, array.dtype)
    filled = 0
    for index in cover(array.shape, start, stop):
        tile = array[index]
        copy[filled : filled + tile.size].reshape(tile.shape)[...] = tile
        filled += tile.size
    return copy.view(np.uint8).data


def gather(values: Sequence[Array | np.generic]) -> bytes:
    """All elements of arrays of one form, one array after the other."""
    if values[0].dtype.kind in _BUFFERS and all(value.flags.c_contiguous for value in values):
        return b"".join(cast("Sequence[bytes]", values))  # buffers, which the stubs do not know
    return b"".join(elements(value, 0, value.size) for value in values)


def in_pages(size_bytes: int) -> Buffer:
    """Fresh memory that begins at a page, as direct reads want it; its bytes mean nothing yet."""
    raw = np.empty(size_bytes + PAGE_BYTES, np.uint8)
    start = -raw.ctypes.data % PAGE_BYTES
    return raw[start : start + size_bytes]


def separate(form: Form, data: Buffer) -> list[object]:
    """Arrays of one form that lie one after the other in `data`, each with its own memory."""
    dtype = undescribe(form.dtype)
    # Copied as bytes, because numpy leaves out padding between fields.
    rows = (row.copy().view(dtype) for row in data.reshape(-1, form.size_bytes))
    if form.kind == "scalar":
        return [row[0] for row in rows]
    return [row.reshape(form.shape) for row in rows]


def _listed(described: object) -> Json:
    if isinstance(described, (list, tuple)):
        return [_listed(part) for part in described]
    if isinstance(described, (str, int)):
        return described
    raise ValueError(f"dtype part {described!r} is no text or number")


def _fields(described: Json) -> object:
    """numpy wants each field, its titled name and its shape as tuples, where JSON has lists."""
    if not isinstance(described, list):
        return described
    return [_field(cast(list[Json], part)) for part in described]


def _field(part: list[Json]) -> tuple[object, ...]:
    name, kind, *shape = part
    named = tuple(name) if isinstance(name, list) else name
    return (named, _fields(kind), *(tuple(cast(list[Json], sizes)) for sizes in shape))
