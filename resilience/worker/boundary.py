"""What a rank does between two steps: go on, wait, save or stop. Pure: no thread, no clock, no IO.

A step boundary is reached when ``done`` steps are done. The supervisor makes all ranks save the
same step without a collective: it asks each for its number of steps done, d (``hold``); answering,
a rank promises not to begin step d + 1 before it hears more. So no rank is past max(d) + 1, and
that is the step which all are told to save (``save_at``, ``stop_at``).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from operator import index
from typing import SupportsIndex

from .errors import StepsRefused
from .interval import Interval


class Verdict(Enum):
    """The next thing to do at a boundary."""

    GO = auto()
    WAIT = auto()
    SAVE = auto()
    STOP = auto()  # save, unless this step is saved already, and exit


def whole_total(total: object) -> int:
    """How many steps there are in all. Raises StepsRefused."""
    if isinstance(total, SupportsIndex) and not isinstance(total, bool):
        with suppress(TypeError):  # an array of more than one number, or of fractions
            if (whole := index(total)) >= 0:
                return whole
    raise StepsRefused(
        f"run.steps({total!r:.80}): expected the total number of steps, a whole number, 0 or more"
    )


class Boundary:
    """The state between two steps; its owner guards it against other threads.

    Attributes:
        done: number of steps done.
        begun: False until the rank knows with which step it starts.
        saved: the step of the last save of this rank, None when it failed.
    """

    def __init__(self, every: Interval | None) -> None:
        self.done = 0
        self.begun = False
        self.saved: int | None = None
        self._every = every
        self._limits: dict[int, int] = {}  # ask → number of steps done at which to wait
        self._unanswered: list[int] = []
        self._save_steps: set[int] = set()
        self._stop_step: int | None = None
        self._tried: int | None = None
        self._tried_at_s = 0.0

    def begin(self, step: int, now_s: float, *, restored: bool) -> list[int]:
        """The run starts with ``step``. Returns the holds that could not be answered until now."""
        self.done, self.begun = step, True
        self._tried, self._tried_at_s = step, now_s
        self.saved = step if restored else None
        asks, self._unanswered = self._unanswered, []
        return asks

    def hold(self, ask: int) -> int | None:
        """Promise to wait, and return the steps done; None when that is not known yet.

        Before the restore a rank must not answer: it would say 0 and then start far behind it.
        """
        if not self.begun:
            self._unanswered.append(ask)
            return None
        self._limits[ask] = self.done + 1
        return self.done

    def save_at(self, ask: int, step: int) -> bool:
        """False when that step has passed: it cannot be saved any more."""
        self.release(ask)
        if step < self.done:
            return False
        if step != self.saved:
            self._save_steps.add(step)
        return True

    def stop_at(self, ask: int, step: int) -> bool:
        """False when that step has passed. Of two stops the earlier one counts."""
        self.release(ask)
        if step < self.done:
            return False
        self._stop_step = step if self._stop_step is None else min(step, self._stop_step)
        return True

    def release(self, ask: int) -> None:
        self._limits.pop(ask, None)
        self._unanswered = [other for other in self._unanswered if other != ask]

    def release_all(self) -> None:
        """Nobody is there any more to end a hold."""
        self._limits.clear()
        self._unanswered.clear()

    def stop_now(self) -> None:
        """Stop at this very boundary: for a rank that has to agree with nobody."""
        self._stop_step = self.done

    def step_done(self) -> None:
        self.done += 1

    def save_tried(self, now_s: float, *, ok: bool) -> None:
        """A failed save is not repeated at the same step; the next one that is due tries again."""
        self._save_steps.discard(self.done)
        self._tried, self._tried_at_s = self.done, now_s
        if ok:
            self.saved = self.done

    def save_lost(self) -> None:
        """A save that had begun well came to nothing."""
        self.saved = None

    def decide(self, now_s: float) -> Verdict:
        if self._stop_step is not None and self.done >= self._stop_step:
            return Verdict.STOP
        if self.done in self._save_steps or self._is_due(now_s):
            return Verdict.SAVE
        if any(self.done >= limit for limit in self._limits.values()):
            return Verdict.WAIT
        return Verdict.GO

    def _is_due(self, now_s: float) -> bool:
        if self._every is None or self.done == self._tried:
            return False
        return self._every.due(self.done, now_s - self._tried_at_s)
