"""How fast a generation does its steps. Pure; times are in seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_WINDOW_S: Final = 60.0


@dataclass(slots=True)
class Rate:
    """Steps per second over the last minute, or over the last step where one takes longer."""

    _moves: deque[tuple[float, int]] = field(default_factory=deque)  # when a step was first seen

    def update(self, step: int | None, now: float) -> float | None:
        """The rate with the step that all ranks have reached; None while it is not known."""
        if step is None or (self._moves and step < self._moves[-1][1]):  # another generation
            self._moves.clear()
        if step is not None and (not self._moves or step > self._moves[-1][1]):
            self._moves.append((now, step))
        while len(self._moves) > 2 and now - self._moves[0][0] > _WINDOW_S:
            self._moves.popleft()
        if len(self._moves) < 2:
            return None
        (began, first), (last_moved, last) = self._moves[0], self._moves[-1]
        return (last - first) / (last_moved - began)
