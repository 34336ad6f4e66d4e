"""A DTensor as the part of it that lies on this rank."""

from __future__ import annotations

from typing import TypeGuard

import torch
import xxhash
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from .boxes import Part


def is_dtensor(value: torch.Tensor) -> TypeGuard[DTensor]:
    return isinstance(value, DTensor)


def take_apart(value: DTensor, key: str) -> tuple[Part, int]:
    """This rank's part, and the rank that saves it, one of those that hold the same.

    Raises ValueError for sums that are not finished and other placements.
    """
    for placement in value.placements:
        if not isinstance(placement, Shard | Replicate) or type(placement) not in (
            Shard,
            Replicate,
        ):
            raise ValueError(f"tensors placed as {placement} are not supported")
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank is not in the device mesh of the tensor")
    _, offset = compute_local_shape_and_global_offset(
        value.shape, value.device_mesh, value.placements
    )
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
    local = value.to_local()
    # An empty part's offset may lie past the end, by torch's count.
    begin = tuple(min(start, whole) for start, whole in zip(offset, value.shape, strict=True))
    return Part(local, tuple(value.shape), begin), writer
