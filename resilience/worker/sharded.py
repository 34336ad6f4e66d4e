"""torch objects that are spread over ranks as DTensors, as FSDP2 leaves them."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def give_state(thing: object) -> None:
    """Lets an optimizer of sharded parameters make its state, so that it shows how it is cut.

    An optimizer makes it in its first step; this one is made with gradients of zero and changes no
    parameter. What it leaves, such as a count of one, is for a restore to replace.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.optim.Optimizer) or thing.state:
        return
    groups = thing.param_groups
    parameters = [one for group in groups for one in group["params"] if one.requires_grad]
    if not any(is_dtensor(one) for one in parameters):
        return
    rates = [group["lr"] for group in groups]
    for one in parameters:
        one.grad = torch.zeros_like(one)
    for group in groups:
        group["lr"] = torch.zeros_like(group["lr"]) if torch.is_tensor(group["lr"]) else 0.0
    thing.step()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    thing.zero_grad()


def as_spread(state: object, like: object) -> object:
    """A restored state in which this rank's parts are DTensors again where ``like`` has these."""
    if isinstance(like, Mapping) and isinstance(state, dict):
        # In place: torch keeps the versions of its modules in an attribute of the state.
        state.update({key: as_spread(state[key], like[key]) for key in state if key in like})
    elif isinstance(like, list) and isinstance(state, list) and len(like) == len(state):
        return [as_spread(one, other) for one, other in zip(state, like, strict=True)]
    elif is_dtensor(like):
        return _spread(state, like)
    return state


def is_dtensor(value: object) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def _spread(part: object, like: object) -> object:
    import torch
    from torch.distributed.tensor import DTensor

    if not isinstance(part, torch.Tensor) or not isinstance(like, DTensor):
        return part
    return DTensor.from_local(
        part.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
