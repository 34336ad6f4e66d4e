"""The state of a run from its journal: all its events, in order, through the same machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .codec import event_from_json
from .machine import step
from .policy import Policy
from .state import State


def replay(events: Iterable[tuple[float, str, Mapping[str, object]]], policy: Policy) -> State:
    """``events`` are (Unix time, name, data) in the order in which they were journaled.

    Raises:
        UnknownRecord: an event that cannot be read.
    """
    state = State()
    for now, name, data in events:
        state, _ = step(state, event_from_json(name, data), policy, now)
    return state
