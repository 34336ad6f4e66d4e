"""Event → journal → decision → journal: what a supervisor knows of its run, and writes of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..decide.actions import Action, Finish
from ..decide.codec import to_json
from ..decide.events import Event
from ..decide.machine import step
from ..decide.policy import Policy
from ..decide.state import State
from ..decide.unwritten import give_up, must_end, need_no_record, trains
from .journal import Entry, JournalWriter, Kind, shown
from .trouble import Trouble

_log: Final = logging.getLogger(__name__)


class Decisions:
    """The machine's state, and the journal of all that changes it.

    ``give_room`` makes some on the journal's file system, where it was kept for the end of a run;
    False when there is none.
    """

    def __init__(
        self, state: State, policy: Policy, journal: JournalWriter, give_room: Callable[[], bool]
    ) -> None:
        self.state = state
        self._policy = policy
        self._journal = journal
        self._give_room = give_room
        self._waiting: list[Action] = []  # for their record
        self._idle_since: float | None = None  # while they do and no rank runs
        self._ended = False
        self._trouble = Trouble("the journal")

    @property
    def unwritten(self) -> bool:
        """Whether the journal lacks something: it is to be tried again, by no events if need be."""
        return self._journal.unwritten

    async def on(self, events: Sequence[Event]) -> list[Action]:
        """The orders to carry out now: durable, as the events are that they follow from.

        While the journal cannot be written they wait, but for those that need no record.
        """
        now = time.time()
        entries: list[Entry] = []
        for event in events:
            self.state, actions = step(self.state, event, self._policy, now)
            entries.append(_entry("event", event, now))
            entries += [_entry("action", action, now) for action in actions]
            self._waiting += actions
        # In a thread: a slow disk must not stop the beats that keep the agents alive.
        failure = await asyncio.to_thread(self._write, entries)
        if failure is None:
            self._trouble.over()
            self._idle_since = None
            return self._release(self._waiting)
        self._trouble.met(failure)
        return self._unwritten_orders(failure, now)

    def close(self) -> None:
        self._journal.close()

    def _write(self, entries: Sequence[Entry]) -> OSError | None:
        failure = self._journal.write(entries)
        if failure is not None and must_end(self.state, self._waiting) and self._give_room():
            return self._journal.write(())
        return failure

    def _unwritten_orders(self, failure: OSError, now: float) -> list[Action]:
        if self._ended:  # what follows an end cannot wait for anything
            return self._release(self._waiting)
        if trains(self.state) or not self._waiting:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        idle_s = 0.0 if self._idle_since is None else time.monotonic() - self._idle_since
        end = give_up(self.state, self._policy, self._waiting, failure, idle_s, now)
        if end is not None:
            _log.error("the end without a record in the journal: %s", end.reason)
            self._waiting.clear()
            return self._release([end])
        return self._release(need_no_record(self._waiting))

    def _release(self, orders: Sequence[Action]) -> list[Action]:
        """They wait no more."""
        released = list(orders)
        self._ended = self._ended or any(isinstance(order, Finish) for order in released)
        self._waiting = [
            one for one in self._waiting if all(one is not order for order in released)
        ]
        return released


def _entry(kind: Kind, subject: Event | Action, now: float) -> Entry:
    data, name = to_json(subject), type(subject).__name__
    _log.info("%s %s", name, shown(data))
    return Entry(now, kind, name, data)
