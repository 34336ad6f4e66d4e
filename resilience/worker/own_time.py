"""How long this rank's own part of a step takes: without the time in which it waits for others.

Pure; times are in seconds. Its owner guards it against other threads.
"""

from __future__ import annotations


class OwnTime:
    """The steps since somebody last asked."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._waited_s = 0.0
        self._own_s = 0.0
        self._whole_s = 0.0
        self._steps = 0

    def begin(self, now: float) -> None:
        """A step begins."""
        self._begun, self._waited_s = now, 0.0

    def waited(self, seconds: float) -> None:
        """So much of it was waiting."""
        self._waited_s += seconds

    def end(self, now: float) -> None:
        """The step is done."""
        if self._begun is not None:
            whole_s = now - self._begun
            self._whole_s += whole_s
            self._own_s += max(0.0, whole_s - self._waited_s)
            self._steps += 1
            self._begun = None

    def take(self) -> tuple[float, float] | None:
        """Means of the steps since the last call: own, whole; None when there was none."""
        if not self._steps:
            return None
        means = self._own_s / self._steps, self._whole_s / self._steps
        self._own_s, self._whole_s, self._steps = 0.0, 0.0, 0
        return means
