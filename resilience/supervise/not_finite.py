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
    """``since``: the state after so many steps is the first that may be spoilt, on ``rank``. Where
    no value has been finite, it is the one that the ranks began with."""

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
        self._over: dict[tuple[str, int], _Row] = {}  # long rows that have ended untold
        self._said: dict[str, Spoilt] = {}
        self._begun = 0

    def begin(self, step: int) -> None:
        """Ranks start from the state after so many steps; nothing else is known of them."""
        self._begun = step
        self._sound.clear()
        self._rows.clear()
        self._over.clear()
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
            ended = self._rows.pop(key, None)
            if ended is not None and ended.times >= IN_A_ROW:
                self._over.setdefault(key, ended)
            return
        since = self._sound[key] + 1 if key in self._sound else self._begun
        row = self._rows.setdefault(key, _Row(since))
        row.times, row.value = row.times + 1, value

    @property
    def said(self) -> tuple[str, ...]:
        """For people: what is not finite now."""
        return tuple(f"rank {one.rank}: {one.detail}" for one in self._said.values())

    @property
    def doubted(self) -> int | None:
        """The first state that may be spoilt, if the last value of any rank was not finite, or
        a row of them is still to be told."""
        return min((row.since for row in self._known.values()), default=None)

    def look(self) -> tuple[Spoilt, ...]:
        """What has turned out not to be finite any more; each name is told once."""
        known = self._known
        lasting = {name for (name, _), row in self._rows.items() if row.times >= IN_A_ROW}
        names = lasting | {name for name, _ in self._over}
        new = {name: _first(name, known) for name in sorted(names - self._said.keys())}
        said = self._said | new
        self._said = {name: one for name, one in said.items() if name in lasting}
        self._over.clear()
        return tuple(new.values())

    @property
    def _known(self) -> dict[tuple[str, int], _Row]:
        return self._rows | self._over  # of two rows of a rank the first is older


def _first(name: str, rows: Mapping[tuple[str, int], _Row]) -> Spoilt:
    """Others follow the rank on which it began."""
    since, rank = min((row.since, rank) for (known, rank), row in rows.items() if known == name)
    row = rows[name, rank]
    detail = f"{name} is {row.value} since step {since}, {counted(row.times, 'time')} in a row"
    return Spoilt(rank, since, detail)
