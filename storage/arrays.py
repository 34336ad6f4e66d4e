"""The arrays of one rank's state: each memory once, and of replicated ones this rank's share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from heapq import heappop, heappush
from typing import TypeVar

import xxhash

from .boxes import Box, Shape
from .leaf import Form, Leaf
from .sealed import Json

V = TypeVar("V")


class Arrays:
    """Takes arrays and gives what stands for them in the tree.

    Two names for the same elements of the same memory get one array, so tied weights stay tied.

    Attributes:
        box: offset and global shape of the part that is being taken.
        replicated: gives the key of the array that is being taken, when it is a replicated one.
        writer: the rank that saves the array that is being taken, where that was decided before.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.leaves: list[Leaf] = []
        self.forms: list[Form] = []
        self.borrows: set[int] = set()
        self.box: tuple[Shape, Shape] | None = None
        self.replicated: Callable[[], str] | None = None
        self.writer: int | None = None
        self._rank = rank
        self._form_numbers: dict[Hashable, int] = {}
        self._nodes: dict[Hashable, tuple[Json, object]] = {}
        self._loads_bytes = [(0, one) for one in range(world_size)]
        self._shares = xxhash.xxh3_128()

    @property
    def shares_digest(self) -> str:
        """Equal for ranks that agree on who saves which replicated array; empty without any."""
        return self._shares.hexdigest() if self._shares.intdigest() != _NO_SHARES else ""

    def add(self, value: V, key: Hashable, form_of: Callable[[V], Form], memory: Hashable) -> Json:
        """`key` is equal for arrays of one form, `memory` for arrays of the same elements.

        Raises ValueError with the reason when the array cannot be stored.
        """
        number = self._form(value, key, form_of)
        identity = (memory, self.box)
        if identity not in self._nodes:
            # With the array, which others save it may be: no address is to be used twice meanwhile.
            self._nodes[identity] = self._taken(number, value), value
        return self._nodes[identity][0]

    def add_new(self, value: object, form: Form) -> Json:
        """An array that nothing else can be tied to."""
        return self._taken(self._number(form), value)

    def _taken(self, form: int, value: object) -> Json:
        writer = self._rank if self.writer is None else self.writer
        if self.replicated is not None:
            writer = self._share(self.replicated(), self.forms[form])
        if writer != self._rank:
            self.borrows.add(writer)
            return {"written_by": writer}
        self.leaves.append(Leaf(form, value))
        return {"array": len(self.leaves) - 1}

    def _share(self, key: str, form: Form) -> int:
        """The rank with the least to write so far; all ranks come to the same."""
        load_bytes, writer = heappop(self._loads_bytes)
        heappush(self._loads_bytes, (load_bytes + form.size_bytes, writer))
        self._shares.update(repr((key, form, writer)).encode("utf-8", "surrogatepass"))
        return writer

    def _form(self, value: V, key: Hashable, form_of: Callable[[V], Form]) -> int:
        full_key = (key, self.box)
        if key is not None and full_key in self._form_numbers:
            return self._form_numbers[full_key]
        form = form_of(value)
        if self.box is not None:
            offset, whole = self.box
            if not Box(offset, form.shape).fits(whole):
                raise ValueError(f"{form.shape} at {offset} is no part of an array of {whole}")
            form = replace(form, global_shape=whole, offset=offset)
        number = self._form_numbers[full_key] = self._number(form)
        return number

    def _number(self, form: Form) -> int:
        if form not in self._form_numbers:
            self._form_numbers[form] = len(self.forms)
            self.forms.append(form)
        return self._form_numbers[form]


_NO_SHARES = xxhash.xxh3_128().intdigest()
