"""How all ranks come to save the same step, without a collective and without a cost per step.

Everybody is asked for the number of steps done, d. By answering, a rank promises not to begin step
d + 1 before it hears more, so it can finish at most d + 1 steps. The agreed step is max(d) + 1:
every rank can still reach it, none can be past it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class CommonStep:
    """One question to all ranks of a generation."""

    ask: int
    ranks: frozenset[int]
    answers: dict[int, int] = field(default_factory=dict)

    def answer(self, rank: int, steps_done: int) -> int | None:
        """Note an answer; the agreed step once all have come."""
        if rank in self.ranks:
            self.answers[rank] = steps_done
        return self.step

    @property
    def step(self) -> int | None:
        if len(self.answers) < len(self.ranks):
            return None
        return max(self.answers.values()) + 1

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(sorted(self.ranks - self.answers.keys()))
