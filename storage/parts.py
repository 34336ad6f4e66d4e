"""Which parts of which arrays the shards of a checkpoint hold, and whether they make wholes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .boxes import Box, Shape, fault
from .index import Index
from .keys import Path, array_paths
from .leaf import Form


@dataclass(frozen=True, slots=True)
class SavedPart:
    """One saved part: whose shard has it, under which number, and what it is."""

    rank: int
    number: int
    form: Form

    @property
    def box(self) -> Box:
        return Box(self.form.offset, self.form.shape)

    @property
    def like(self) -> tuple[str, str, Shape | None]:
        """The same for all parts of one array."""
        return (self.form.kind, self.form.dtype, self.form.global_shape)


Parts = Mapping[Path, list[SavedPart]]


def parts_of(indexes: Mapping[int, Index]) -> Parts:
    """The parts in shards, given by rank, by the key of their array."""
    found: dict[Path, list[SavedPart]] = defaultdict(list)
    for rank, index in indexes.items():
        if all(form.global_shape is None for form in index.forms):
            continue
        for path, node in array_paths(index.tree):
            form = index.forms[index.arrays[node["array"]]] if "array" in node else None
            if form is not None and form.global_shape is not None:
                found[path].append(SavedPart(rank, node["array"], form))
    return found


def misfit(parts: list[SavedPart], wanted: Box | None = None) -> str:
    """Why parts of one array do not make the wanted box, or all of it; empty when they do."""
    if len({part.like for part in parts}) > 1:
        return "its parts differ in dtype or global shape"
    whole = parts[0].form.global_shape or ()
    if wanted is not None and not wanted.fits(whole):
        return f"{wanted.shape} at {wanted.offset} is no part of an array of {whole}"
    return fault(wanted or Box((0,) * len(whole), whole), [part.box for part in parts])


def misfits(indexes: Mapping[int, Index]) -> Iterator[tuple[str, str]]:
    """Key and reason for every array that the parts in all shards do not make exactly once."""
    for path, parts in parts_of(indexes).items():
        reason = misfit(parts)
        if reason:
            yield "/".join(path), reason
