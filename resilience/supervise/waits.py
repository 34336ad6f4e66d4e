"""What an attempt waits for while its ranks do no steps, and since when. Pure; for people only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from relight.counted import counted

from ..decide.state import Phase, State

_MOST_NAMED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """For what, since when (Unix seconds)."""

    what: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What is known beside the state.

    Attributes:
        start: what a start of ranks waits for, but agents; None when it waits for those.
        absent: nodes from which no agent has come.
        places: the node of each rank whose program runs.
        speaking: the ranks whose program has joined.
        begun: the ranks that have begun their steps.
        world_size: of this generation.
    """

    start: str | None
    absent: Sequence[str]
    places: Mapping[int, str]
    speaking: Set[int]
    begun: Set[int]
    world_size: int


class Waits:
    """Remembers since when it is the same."""

    def __init__(self) -> None:
        self._known: object = None
        self._since = 0.0

    def look(self, state: State, waited: Waited, now: float) -> Wait | None:
        """None while ranks do steps, or say nothing of them."""
        what = awaited(state, waited)
        known = (state.attempt, state.phase, state.generation, waited.start)
        if known != self._known:
            self._known, self._since = known, now
        return None if what is None else Wait(what=what, since=self._since)


def awaited(state: State, waited: Waited) -> str | None:
    """In words; None when it waits for nothing that is known."""
    match state.phase:
        case Phase.PREFLIGHT:
            return f"the preflight of {counted(len(state.nodes), 'node')}"
        case Phase.STARTING:
            agents = f"agents on {_some(waited.absent)}" if waited.absent else None
            return waited.start or agents or "ranks to be started"
        case Phase.RUNNING:
            return _to_begin(waited)
        case Phase.STOPPING:
            return f"{counted(len(waited.places), 'rank')} to end" if waited.places else None
        case Phase.PROBING:
            return f"what is found out of {_some(state.suspects) or 'the nodes'}"
        case Phase.WAITING:
            return "the file system of the checkpoints"
        case Phase.MOVING:
            return "the scheduler, which was asked for a new allocation"
        case _:
            return None


def _to_begin(waited: Waited) -> str | None:
    """A program that has not joined may be one that never does."""
    late = sorted(waited.places.keys() - waited.begun)
    if not waited.speaking or not late:
        return None
    nodes = _some(list(dict.fromkeys(waited.places[rank] for rank in late)))
    named = _some([str(rank) for rank in late])
    ranks, their = ("ranks", "their") if len(late) > 1 else ("rank", "its")
    return f"{ranks} {named} ({nodes}) of {waited.world_size} to begin {their} steps"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
