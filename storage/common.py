"""What ranks have in common, though each saved it for itself: digests and keys tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from .keys import Path as Key
from .keys import replaced
from .manifest import Manifest
from .restore import understood
from .sealed import Json
from .shards import Shards

PART: Final[Json] = {"part": True}  # in place of an array that is compared elsewhere


class Difference(NamedTuple):
    """A key under which a rank has another value than rank 0, or only one of them has any."""

    key: Key
    rank: int


def differences(directory: Path, manifest: Manifest) -> Iterator[Difference]:
    """Rank by rank, as deep as dicts are nested. Parts of larger arrays are left out.

    Of arrays with digests of their own only these are read. Raises CheckpointDamaged.
    """
    first = _comparable(directory, manifest, 0)
    for rank in range(1, manifest.world_size):
        for key in differing(first, _comparable(directory, manifest, rank), ()):
            yield Difference(key, rank)


def _comparable(directory: Path, manifest: Manifest, rank: int) -> Json:
    """A rank's tree with what its arrays are in place of their numbers; equal if the states are."""
    # The shards are closed after each rank: those of thousands would not fit into memory.
    with Shards(directory, manifest) as shards, understood(shards, rank):

        def described(key: Key, node: Json) -> Json:
            writer, number = shards.holder(rank, key, cast(Mapping[str, int], node))
            form = shards.form(writer, number)
            if form.global_shape is not None:
                return PART
            digest = shards.fingerprint(writer, number).hex()
            return {"same": [form.kind, form.dtype, list(form.shape), digest]}

        return replaced(shards.index(rank).tree, described)


def differing(one: Json, other: Json, key: Key) -> Iterator[Key]:
    """The keys under which two trees differ, as deep as dicts are nested; one may lack parts."""
    if one == other:
        return
    members, others = _members(one), _members(other)
    if members is None or others is None:
        yield key
        return
    for name in dict.fromkeys([*members, *others]):
        if name in members and name in others:
            yield from differing(members[name], others[name], (*key, name))
        elif members.get(name, others.get(name)) != PART:
            yield (*key, name)


def _members(tree: Json) -> Mapping[str, Json] | None:
    if isinstance(tree, dict) and tree.keys() == {"dict"}:
        return cast(dict[str, Json], tree["dict"])
    return None
