"""How often agents and programs say that they live. Pure; standard library only.

A supervisor hears from all of them, so that in a large world each may speak less often. That a node
lives is said by one of its agents alone, in every world at the same pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "RELIGHT_BEAT_S"
SHORT_S: Final = 1.0
LONG_S: Final = 5.0
# So many ranks may beat each second: at twice the number a beat comes half as often.
_RANKS_AT_FULL_PACE: Final = 1000
_PATIENCE: Final = 1.5  # of an agent with its program, in beats


def beat_of_world(world_size: int) -> float:
    """Seconds between two beats of a rank; more than ``LONG_S`` would look like silence."""
    return min(max(SHORT_S, world_size / _RANKS_AT_FULL_PACE), LONG_S)


def beat_s(environment: Mapping[str, str]) -> float:
    """Seconds between two beats of a program."""
    return float(environment.get(VARIABLE, SHORT_S))


def agent_beat_s(environment: Mapping[str, str], *, leader: bool) -> float:
    """Seconds after which an agent that has said nothing beats; ``leader`` speaks for its node.

    Others pass on what their programs say, which need not be said twice: in a large world they wait
    for it.
    """
    program_s = beat_s(environment)
    return SHORT_S if leader or program_s <= SHORT_S else _PATIENCE * program_s
