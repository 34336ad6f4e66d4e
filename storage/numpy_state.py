"""numpy arrays and scalars as raw bytes and back, bit for bit."""

from __future__ import annotations

from math import prod
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from .leaf import Leaf
from .sealed import Json

Array = npt.NDArray[np.generic]
Buffer = npt.NDArray[np.uint8]
_KINDS = "biufcSUVmM"
S = TypeVar("S", bound=np.generic)


def to_leaf(value: Array | np.generic) -> Leaf:
    """Raises ValueError with the reason when the dtype cannot be stored exactly."""
    array = np.asarray(value)
    return Leaf(
        kind="scalar" if isinstance(value, np.generic) else "numpy",
        dtype=describe(array.dtype),
        shape=array.shape,
        size_bytes=array.nbytes,
        content=lambda: raw(array),
    )


def same_memory(array: Array) -> tuple[object, ...]:
    """Equal for two arrays that are the same elements of the same memory."""
    if array.size == 0:
        return ("numpy", id(array))
    start = array.__array_interface__["data"][0]
    return ("numpy", start, array.shape, array.strides, array.dtype)


def rebuild(kind: str, dtype: Json, shape: tuple[int, ...], data: Buffer) -> Array | np.generic:
    """The array over `data`, which it owns from now on. Raises ValueError on a misfit."""
    described = undescribe(dtype)
    if data.nbytes != prod(shape) * described.itemsize:
        raise ValueError(f"{data.nbytes} bytes do not make {shape} of {described}")
    array: Array = (
        data.view(described).reshape(shape) if data.nbytes else np.empty(shape, described)
    )
    return cast(np.generic, array[()]) if kind == "scalar" else array


def describe(dtype: np.dtype[np.generic]) -> Json:
    """A dtype as JSON, as numpy's own file format spells it. Raises ValueError."""
    if dtype.isbuiltin == 1 and dtype.kind in _KINDS and dtype.metadata is None:
        return dtype.str
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise ValueError(f"arrays of dtype {dtype} hold references, not values")
    described = _listed(dtype.descr if dtype.names is not None else dtype.str)
    if dtype.metadata is not None or undescribe(described) != dtype:
        raise ValueError(f"dtype {dtype!r} cannot be described exactly")
    return described


def undescribe(described: Json) -> np.dtype[np.generic]:
    """The inverse of `describe`. Raises ValueError or TypeError."""
    # The stub knows only flat lists of fields.
    return np.lib.format.descr_to_dtype(_fields(described))  # type: ignore[arg-type]


def raw(array: Array) -> memoryview:
    """The elements in C order as bytes; copies only when they do not lie so."""
    if array.nbytes == 0:
        return memoryview(b"")
    flat = np.asarray(array, order="C").reshape(-1)
    return flat.view(np.uint8).data


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
