"""Copies that may take as long as the next step computes: of what only optimizers change.

torch calls a hook before each step of every optimizer, and that is where such a copy is waited for.
An optimizer counts once it has made a step, so one that does not call the hook never does. All
else, such as buffers that a forward pass changes, is copied while the program waits.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from relight.storage.write_shard import Source

if TYPE_CHECKING:
    import torch


class ChangedMeanwhile(OSError):
    """A copy is not of one moment: something else than an optimizer has changed an array."""

    def __init__(self) -> None:
        super().__init__(
            "a tensor of an optimizer was changed by something else while it was copied: switch "
            "checkpoint.overlap off"
        )


class Optimizers:
    """Watches the optimizers of this process. Loads torch."""

    def __init__(self, before_step: Callable[[], None]) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._seen: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._before_step = before_step
        self._owner = os.getpid()
        self._handle = register_optimizer_step_pre_hook(self._step_begins)

    def close(self) -> None:
        self._handle.remove()

    def held(self, source: Source) -> dict[int, int]:
        """The arrays that only optimizers change, by number, and how often each was changed."""
        memories = {memory for one in self._seen for memory in _memories(one)}
        return {
            number: version
            for number, leaf in enumerate(source.leaves)
            if (version := _version(leaf.value)) is not None and _memory(leaf.value) in memories
        }

    @staticmethod
    def require_unchanged(source: Source, versions: Mapping[int, int]) -> None:
        """Raises ChangedMeanwhile."""
        if any(_version(source.leaves[n].value) != version for n, version in versions.items()):
            raise ChangedMeanwhile

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if os.getpid() != self._owner:
            return
        self._seen.add(optimizer)
        self._before_step()


def optimizers(before_step: Callable[[], None]) -> Optimizers | None:
    """None while the program has not loaded torch."""
    return Optimizers(before_step) if "torch" in sys.modules else None


def _memories(optimizer: torch.optim.Optimizer) -> Iterator[object]:
    import torch

    parameters: Iterable[torch.Tensor] = (
        one for group in optimizer.param_groups for one in group["params"]
    )
    for parameter in parameters:
        for value in (parameter, *optimizer.state.get(parameter, {}).values()):
            local = getattr(value, "_local_tensor", value)  # of a DTensor
            if isinstance(local, torch.Tensor):
                yield _memory(local)


def _memory(value: object) -> object:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.device, value.untyped_storage().data_ptr()


def _version(value: object) -> int | None:
    """None for what does not count its changes."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_inference():
        return None
    return value._version
