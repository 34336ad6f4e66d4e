"""How often to save: "20 steps", "10min" or "auto", and when that is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .errors import JoinRefused

_UNIT_S: Final = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPELLING: Final = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-z]+)")

AUTO: Final = "auto"
AUTO_ALONE_S: Final = 600.0  # nobody measures the rate of failures for a program on its own


@dataclass(frozen=True, slots=True)
class EverySteps:
    """Known to all ranks alike, so each decides by itself."""

    steps: int

    def due(self, done: int, since_s: float) -> bool:
        return done % self.steps == 0


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Clocks differ between ranks: only one decider may use it."""

    seconds: float

    def due(self, done: int, since_s: float) -> bool:
        return since_s >= self.seconds


Interval = EverySteps | EverySeconds


def parse_interval(text: str) -> Interval:
    """What the user wrote; "auto" is ten minutes until somebody knows better.

    Raises:
        JoinRefused: the text is none of the spellings.
    """
    if text == AUTO:
        return EverySeconds(AUTO_ALONE_S)
    match = _SPELLING.fullmatch(text.strip())
    if match is not None:
        amount, unit = float(match["amount"]), match["unit"]
        if unit in ("step", "steps") and amount >= 1 and amount.is_integer():
            return EverySteps(int(amount))
        if unit in _UNIT_S and amount > 0:
            return EverySeconds(amount * _UNIT_S[unit])
    raise JoinRefused(
        f'checkpoint interval {text!r} is not understood: write "20 steps", "90s", "10min", "2h" '
        'or "auto"'
    )
