"""What a save costs the program: how long its steps waited, and the memory of the copy."""

from __future__ import annotations

from dataclasses import dataclass

from ..messages import Message


@dataclass(frozen=True, slots=True)
class Stall:
    """Of all ranks that have told. ``stall_s`` is the longest wait, None where nobody knows.

    ``behind_s`` is the part of it that was spent on the save before, which had not ended: saves
    come faster than they are written. ``staged_bytes`` is the sum of the copies.
    """

    stall_s: float | None = None
    behind_s: float = 0.0
    staged_bytes: int = 0

    def told(self, saved: Message) -> Stall:
        """With what one more rank has said."""
        stall_s, behind_s, staged = (saved.get(name) for name in ("stall_s", "behind_s", "staged"))
        longest = [one for one in (self.stall_s, stall_s) if isinstance(one, int | float)]
        return Stall(
            stall_s=float(max(longest)) if longest else None,
            behind_s=max(self.behind_s, behind_s if isinstance(behind_s, int | float) else 0.0),
            staged_bytes=self.staged_bytes + (staged if isinstance(staged, int) else 0),
        )
