"""The small arrays of a shard lie in one dataset, by form: all of the first, then of the second.

Arrays of one form are gathered and separated by one call, not by one per array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from . import content
from .blocks import BLOCK_BYTES
from .index import Index
from .leaf import Form, Leaf
from .numpy_state import Buffer
from .output import Run, run_of


def runs(at: int, forms: Sequence[Form], leaves: Sequence[Leaf]) -> Iterator[Run]:
    """The pack that begins at position `at`, of small leaves in any order, block by block."""
    block = bytearray()
    for part in _parts(forms, leaves):
        block += part
        while len(block) >= BLOCK_BYTES:
            yield run_of(at, bytes(block[:BLOCK_BYTES]))
            at += BLOCK_BYTES
            del block[:BLOCK_BYTES]
    if block:
        yield run_of(at, bytes(block))


def unpack(index: Index, pack: Buffer) -> dict[int, object]:
    """The small arrays by number. Raises ValueError."""
    found: dict[int, object] = {}
    for form, numbers, start in index.packed():
        data = pack[start : start + form.size_bytes * len(numbers)]
        if form.size_bytes:
            found.update(zip(numbers, content.separate(form, data), strict=True))
        else:
            found.update((number, content.rebuild(form, data)) for number in numbers)
    return found


def _parts(forms: Sequence[Form], leaves: Sequence[Leaf]) -> Iterator[bytes | memoryview]:
    by_form = sorted(leaves, key=lambda leaf: leaf.form)
    for number, group in groupby(by_form, key=lambda leaf: leaf.form):
        form, members = forms[number], list(group)
        if form.size_bytes == 0:
            continue
        step = max(1, BLOCK_BYTES // form.size_bytes)
        for first in range(0, len(members), step):
            yield content.gather(form, members[first : first + step])
