"""Event → journal → decision → journal: what a supervisor knows of its run, and writes of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from ..decide.actions import Action
from ..decide.codec import to_json
from ..decide.events import Event
from ..decide.machine import step
from ..decide.policy import Policy
from ..decide.state import State
from .journal import Entry, JournalWriter, Kind, shown

_log: Final = logging.getLogger(__name__)


class Decisions:
    """The machine's state, and the journal of all that changes it."""

    def __init__(self, state: State, policy: Policy, journal: JournalWriter) -> None:
        self.state = state
        self._policy = policy
        self._journal = journal

    async def on(self, events: Sequence[Event]) -> list[Action]:
        """The orders that follow from events, both durable by then."""
        now = time.time()
        entries: list[Entry] = []
        orders: list[Action] = []
        for event in events:
            self.state, actions = step(self.state, event, self._policy, now)
            entries.append(_entry("event", event, now))
            entries += [_entry("action", action, now) for action in actions]
            orders += actions
        # In a thread: a slow disk must not stop the beats that keep the agents alive.
        await asyncio.to_thread(self._journal.write, entries)
        return orders

    def close(self) -> None:
        self._journal.close()


def _entry(kind: Kind, subject: Event | Action, now: float) -> Entry:
    data, name = to_json(subject), type(subject).__name__
    _log.info("%s %s", name, shown(data))
    return Entry(now, kind, name, data)
