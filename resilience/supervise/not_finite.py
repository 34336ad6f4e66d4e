"""A loss that stays NaN or infinite, as ranks log it. Pure.

A single one is common: mixed precision skips the step, and goes on with a smaller scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from relight.counted import counted

from ..messages import Message

IN_A_ROW: Final = 10
_NAMED: Final = "loss"  # as in "train_loss" or "val/loss"; norms of gradients may well be infinite


@dataclass(frozen=True, slots=True)
class Spoilt:
    """``since``: the state after so many steps is the first that may be spoilt, on ``rank``."""

    rank: int
    since: int
    detail: str


@dataclass(slots=True)
class _Row:
    since: int
    times: int = 0
    value: float = math.nan


class NotFinite:
    """One generation; values are looked at by rank and by name."""

    def __init__(self) -> None:
        self._sound: dict[tuple[str, int], int] = {}  # steps done when the value was finite
        self._rows: dict[tuple[str, int], _Row] = {}
        self._said: dict[str, Spoilt] = {}

    def begin(self) -> None:
        """Nothing is known of these ranks."""
        self._sound.clear()
        self._rows.clear()
        self._said.clear()

    def on_word(self, rank: int, word: Message) -> None:
        """What a rank says (see ``messages``)."""
        values, step = word.get("values"), word.get("step")
        if word["type"] != "logged" or not isinstance(values, Mapping) or type(step) is not int:
            return
        for name, value in values.items():
            if _NAMED in name.lower() and isinstance(value, float):
                self._note((name, rank), step, value)

    def _note(self, key: tuple[str, int], step: int, value: float) -> None:
        if math.isfinite(value):
            self._sound[key] = step
            self._rows.pop(key, None)
            return
        since = self._sound[key] + 1 if key in self._sound else step
        row = self._rows.setdefault(key, _Row(since))
        row.times, row.value = row.times + 1, value

    @property
    def said(self) -> tuple[str, ...]:
        """For people: what is not finite now."""
        return tuple(f"rank {one.rank}: {one.detail}" for one in self._said.values())

    @property
    def doubted(self) -> int | None:
        """The first state that may be spoilt, if the last value of any rank was not finite."""
        return min((row.since for row in self._rows.values()), default=None)

    def look(self) -> tuple[Spoilt, ...]:
        """What has turned out not to be finite any more; each name is told once."""
        names = {name for (name, _), row in self._rows.items() if row.times >= IN_A_ROW}
        new = {name: self._first(name) for name in sorted(names - self._said.keys())}
        self._said = {name: one for name, one in self._said.items() if name in names} | new
        return tuple(new.values())

    def _first(self, name: str) -> Spoilt:
        """Others follow the rank on which it began."""
        rows = [(row.since, rank) for (known, rank), row in self._rows.items() if known == name]
        since, rank = min(rows)
        row = self._rows[name, rank]
        detail = f"{name} is {row.value} since step {since}, {counted(row.times, 'time')} in a row"
        return Spoilt(rank, since, detail)
