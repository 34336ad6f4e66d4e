"""What an agent does for a warm start: it learns the modules, and has a process with them ready."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from .program import before_python
from .standby import PythonCommand, Standby

# The imports of the next generation must not slow down the first steps of this one.
WARM_UP_AFTER_S: Final = 15.0


class WarmStart:
    """Of one agent. At most one process waits, and the next program is it."""

    def __init__(self) -> None:
        self._command: PythonCommand | None = None
        self._modules: list[str] = []
        self._due_at = float("inf")
        self._standby: Standby | None = None

    def take(self) -> Standby | None:
        """The process that waits, for the program that begins now."""
        standby, self._standby, self._due_at = self._standby, None, float("inf")
        return standby

    def follow(self, argv: Sequence[str] | None) -> None:
        """A program runs, with this command; None for one whose next start is to be cold."""
        self._command = PythonCommand.of(argv) if argv is not None else None

    def learn(self, modules: object) -> None:
        """The program has imported them, and begins its steps."""
        if isinstance(modules, list):
            self._modules = [str(name) for name in modules]
            self._due_at = time.monotonic() + WARM_UP_AFTER_S

    def look(self, env: Mapping[str, str]) -> int | None:
        """Begin when it is time; the process that is no part of the program."""
        if time.monotonic() <= self._due_at:
            return None
        self._due_at = float("inf")
        return self._begin(env)

    def get_ready(self, argv: Sequence[str], modules: object, env: Mapping[str, str]) -> None:
        """Begin at once, on a node where no program runs."""
        self.follow(argv)
        self.learn(modules)
        self._due_at = float("inf")
        self._begin(env)

    def end(self) -> None:
        """Nothing waits any more."""
        standby = self.take()
        if standby is not None:
            standby.end()

    def _begin(self, env: Mapping[str, str]) -> int | None:
        if self._command is None or self._standby is not None:
            return None
        self._standby = Standby(self._command, self._modules, env, before_python)
        return self._standby.pid
