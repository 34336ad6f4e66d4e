"""Which arrays of a torch object its ``load_state_dict`` copies into, and nothing else.

What is restored may be read into these beforehand: torch copies nothing onto itself. Whoever gives
a key another meaning, by a hook or by a method of its own, gets what was saved in other memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def written_over(thing: object) -> Mapping[str, object] | None:
    """By their keys in the state; None where that cannot be said."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(thing, torch.nn.Module) and _loads_plainly(thing):
        return dict(_tensors(thing))
    return None


def _loads_plainly(module: torch.nn.Module) -> bool:
    from torch import nn

    return _function(module.load_state_dict) is nn.Module.load_state_dict and all(
        # Those of torch's own layers add what states of old versions lack.
        _function(one._load_from_state_dict).__module__.startswith("torch.nn.modules.")
        and type(one).get_extra_state is nn.Module.get_extra_state
        and not one._load_state_dict_pre_hooks
        for one in module.modules()
    )


def _function(method: object) -> object:
    return getattr(method, "__func__", method)


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers as a module saves them itself, also under a second name."""
    for path, one in module.named_modules(remove_duplicate=False):
        for name, tensor in chain(one._parameters.items(), one._buffers.items()):
            if tensor is not None and name not in one._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name, tensor
