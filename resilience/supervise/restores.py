"""What the ranks of one generation tell of their restores: told on once all have begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..decide.events import Event
from ..decide.storage_events import CheckpointRestored, TierRead
from ..messages import Message


class Restores:
    """``size_bytes`` is that of the whole checkpoint; None for a start from the beginning.

    ``moved`` says which ranks found a copy of what they had saved on another node.
    """

    def __init__(
        self,
        generation: int,
        world_size: int,
        size_bytes: int | None,
        emit: Callable[[Event], None],
        moved: Callable[[Sequence[int]], tuple[int, ...]],
    ) -> None:
        self._generation = generation
        self._world_size = world_size
        self._size_bytes = size_bytes
        self._emit = emit
        self._moved = moved
        self._seconds: dict[int, float] = {}
        self._near: set[int] = set()  # ranks that have restored from the tier of their node

    def restored(self, rank: int, step: int, body: Message) -> None:
        """A rank begins; it has restored, if there was anything to restore."""
        seconds = body.get("seconds")
        self._seconds[rank] = seconds if isinstance(seconds, float) else 0.0
        if body.get("near") is True:
            self._near.add(rank)
        if len(self._seconds) < self._world_size or self._size_bytes is None:
            return
        slowest_rank = max(self._seconds, key=lambda one: self._seconds[one])
        self._emit(
            CheckpointRestored(
                generation=self._generation,
                step=step,
                size_bytes=self._size_bytes,
                seconds=self._seconds[slowest_rank],
                slowest_rank=slowest_rank if self._world_size > 1 else None,
            )
        )
        if self._near:
            near = tuple(sorted(self._near))
            moved = self._moved(near)
            self._emit(
                TierRead(generation=self._generation, step=step, ranks=near, by_partner=moved)
            )
        self._size_bytes = None
