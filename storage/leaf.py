"""The arrays of a state: what describes one in the index, and where its bytes come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .sealed import Json


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array on its way to disk.

    Attributes:
        kind: who rebuilds it: `numpy`, `scalar` (of numpy), `torch` or `bytes`.
        dtype: in the words of that kind; numpy's may be a list of fields.
        size_bytes: of its elements in C order, whatever the strides in memory are.
        content: makes these bytes, or gives a view of them where they lie so already.
    """

    kind: str
    dtype: Json
    shape: tuple[int, ...]
    size_bytes: int
    content: Callable[[], memoryview]
