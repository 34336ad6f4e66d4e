"""The arrays of a state on their way to disk: their forms, and their values where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Form:
    """All that is known of an array but its values. Many arrays of a state share one.

    Attributes:
        kind: who rebuilds it: `numpy`, `scalar` (of numpy), `torch` or `bytes`.
        dtype: in the words of that kind.
        shape: what is here of it.
        size_bytes: of its elements in C order, whatever the strides in memory are.
        global_shape, offset: of a part, the whole array and where the part begins in it.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    global_shape: tuple[int, ...] | None = None
    offset: tuple[int, ...] = ()


class Leaf(NamedTuple):
    """One array: the number of its form in the state's list of forms, and the array itself."""

    form: int
    value: object
