"""A DTensor as the part of it that lies on this rank."""

from __future__ import annotations

from typing import TypeGuard

import xxhash
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from .boxes import Part


def is_dtensor(value: object) -> TypeGuard[DTensor]:
    return isinstance(value, DTensor)


def take_apart(value: DTensor, key: str) -> tuple[Part, int]:
    """This rank's part, and the rank that saves it, one of those that hold the same.

    Raises ValueError for sums that are not finished and other placements.
    """
    part = part_of(value)
    coordinate = value.device_mesh.get_coordinate()
    assert coordinate is not None  # or there were no part
    holders = (
        value.device_mesh.mesh[
            tuple(
                slice(None) if isinstance(placement, Replicate) else place
                for placement, place in zip(value.placements, coordinate, strict=True)
            )
        ]
        .flatten()
        .tolist()
    )
    writer = holders[xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")) % len(holders)]
    return part, writer


def part_of(value: DTensor) -> Part:
    """What lies on this rank. Raises ValueError as `take_apart` does."""
    for placement in value.placements:
        if not isinstance(placement, Shard | Replicate) or type(placement) not in (
            Shard,
            Replicate,
        ):
            raise ValueError(f"tensors placed as {placement} are not supported")
    if value.device_mesh.get_coordinate() is None:
        raise ValueError("this rank is not in the device mesh of the tensor")
    _, offset = compute_local_shape_and_global_offset(
        value.shape, value.device_mesh, value.placements
    )
    local = value.to_local()
    # An empty part's offset may lie past the end, by torch's count.
    begin = tuple(min(start, whole) for start, whole in zip(offset, value.shape, strict=True))
    return Part(local, tuple(value.shape), begin)
