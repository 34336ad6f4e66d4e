"""What ranks have in common, though each saved it for itself: digests and keys tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from .keys import Path as Key
from .keys import array_paths, replaced
from .manifest import Manifest
from .restore import understood
from .sealed import Json
from .shards import Shards

Lent = dict[tuple[int, Key], Json]  # by writer and key
PART: Final[Json] = {"part": True}  # in place of an array that is compared elsewhere


class Difference(NamedTuple):
    """A key under which a rank has another value than rank 0, or only one of them has any."""

    key: Key
    rank: int


def differences(directory: Path, manifest: Manifest) -> Iterator[Difference]:
    """Rank by rank, as deep as dicts are nested. Parts of larger arrays are left out.

    Of arrays with digests of their own only these are read. Raises CheckpointDamaged.
    """
    lent: Lent = {}
    first = _comparable(directory, manifest, 0, lent)
    for rank in range(1, manifest.world_size):
        for key in differing(first, _comparable(directory, manifest, rank, lent), ()):
            yield Difference(key, rank)


def _comparable(directory: Path, manifest: Manifest, rank: int, lent: Lent) -> Json:
    """A rank's tree with what its arrays are in place of their numbers; equal if the states are.

    An array that one rank has saved for others is looked up once, not for each of them: else each
    rank's tree would open the shards of all.
    """
    # The shards are closed after each rank: those of thousands would not fit into memory.
    with Shards(directory, manifest) as shards, understood(shards, rank):
        tree = shards.index(rank).tree
        borrowed = {
            (node["written_by"], key) for key, node in array_paths(tree) if "written_by" in node
        }
        for writer, key in sorted(borrowed - lent.keys()):  # shard by shard
            lent[writer, key] = _described(shards, writer, shards.number_of(writer, key))

        def described(key: Key, node: Json) -> Json:
            places = cast(Mapping[str, int], node)
            if "written_by" in places:
                return lent[places["written_by"], key]
            return _described(shards, rank, places["array"])

        return replaced(tree, described)


def _described(shards: Shards, rank: int, number: int) -> Json:
    form = shards.form(rank, number)
    if form.global_shape is not None:
        return PART
    digest = shards.fingerprint(rank, number).hex()
    return {"same": [form.kind, form.dtype, list(form.shape), digest]}


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


def under(tree: Json, key: Key) -> Json:
    """What a key of :func:`differing` leads to; None where there is nothing."""
    for name in key:
        tree = (_members(tree) or {}).get(name)
    return tree


def _members(tree: Json) -> Mapping[str, Json] | None:
    if isinstance(tree, dict) and tree.keys() == {"dict"}:
        return cast(dict[str, Json], tree["dict"])
    return None
