"""How much time an emergency save has. Pure; all times are Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# After the save: the commit, and the request for a new allocation.
_AFTER_S: Final = 2.0
# Without a deadline from the scheduler.
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """``kill_at`` is when processes are killed, None when nobody kills them.

    ``last_seconds`` is what the last save took, ``step_s`` the longest step so far.
    """

    kill_at: float | None
    last_seconds: float | None
    step_s: float = 0.0

    @property
    def need_s(self) -> float:
        """Two steps until the common one is done, and twice the last save: bandwidth varies."""
        return 2.0 * self.step_s + 2.0 * (self.last_seconds or 0.0)

    def left_s(self, now: float) -> float:
        """What is left for the ranks, after a part is kept for what follows them."""
        if self.kill_at is None:
            return max(_PATIENCE_S, 2.0 * self.need_s)
        left_s = self.kill_at - now
        return max(0.0, left_s - min(_AFTER_S, left_s / 4))

    def answer_limit_s(self, now: float) -> float:
        """How long to wait for ranks to say where they are."""
        return min(20.0, self.left_s(now) / 2)
