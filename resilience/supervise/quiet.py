"""Hangs of programs that do not use the Python API: no output, or no use of a CPU. Pure.

Both are for the user to ask for: many programs are silent for long, and some wait for long. Output
counts for all ranks together, since often only one writes; each rank has to compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config import RestartConfig
from ..messages import Message
from .pace import Hang


@dataclass(slots=True)
class Quiet:
    """One generation, by the reports of its agents (``active`` in ``messages``)."""

    config: RestartConfig
    _at_work: set[int] = field(default_factory=set, init=False)
    _output_s: dict[int, float] = field(default_factory=dict, init=False)
    _idle_s: dict[int, float] = field(default_factory=dict, init=False)

    def begin(self, world_size: int) -> None:
        """A generation of so many ranks starts."""
        self._at_work = set(range(world_size))
        self._output_s.clear()
        self._idle_s.clear()

    def on_word(self, rank: int, word: Message) -> None:
        """What an agent has seen of its program."""
        output_s, idle_s = word.get("output_s"), word.get("idle_s")
        if word["type"] != "active" or rank not in self._at_work:
            return
        if isinstance(output_s, float) and isinstance(idle_s, float):
            self._output_s[rank], self._idle_s[rank] = output_s, idle_s

    def ended(self, rank: int) -> None:
        """The program of a rank has ended: it owes nothing any more."""
        self._at_work.discard(rank)
        self._output_s.pop(rank, None)
        self._idle_s.pop(rank, None)

    def hang(self) -> Hang | None:
        """Who is quiet; None while all is well."""
        limit_s, all_have = self.config.silence_s, self._output_s.keys() == self._at_work
        silent_s = min(self._output_s.values(), default=0.0) if all_have else 0.0
        if limit_s is not None and silent_s > limit_s:
            detail = f"no rank has written anything for {silent_s:.0f} s"
            return Hang(tuple(sorted(self._output_s)), f"{detail}, the limit is {limit_s:.0f} s")
        limit_s = self.config.idle_s
        if limit_s is None:
            return None
        idle = tuple(sorted(rank for rank, idle_s in self._idle_s.items() if idle_s > limit_s))
        return Hang(idle, f"no CPU was used for more than {limit_s:.0f} s") if idle else None
