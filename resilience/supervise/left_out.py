"""Ranks that have ended with 0 before their first step, while others do steps: these save what is
never complete, and that is to be told before hours of work have come to nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..messages import Message


@dataclass(slots=True)
class LeftOut:
    """One generation, by what its ranks say and how they end."""

    _begun: set[int] = field(default_factory=set, init=False)
    _ended: set[int] = field(default_factory=set, init=False)
    _told: bool = field(default=False, init=False)

    def begin(self) -> None:
        """A generation starts."""
        self._begun.clear()
        self._ended.clear()
        self._told = False

    def on_word(self, rank: int, word: Message) -> None:
        """What a rank says (see ``messages``)."""
        if word["type"] in ("restored", "beat"):
            self._begun.add(rank)

    def ended(self, rank: int) -> None:
        """The program of a rank has ended with 0."""
        if rank not in self._begun:
            self._ended.add(rank)

    @property
    def said(self) -> tuple[str, ...]:
        """For people; nothing while no other rank has begun its steps."""
        if not self._ended or not self._begun:
            return ()
        ranks = f"{'rank' if len(self._ended) == 1 else 'ranks'} {str(sorted(self._ended))[1:-1]}"
        return (f"{ranks} ended with code 0 before the first step: no checkpoint is complete",)

    def look(self) -> str | None:
        """What is to be told now: each generation hears of it once."""
        if self._told or not self.said:
            return None
        self._told = True
        return self.said[0]
