"""A run's journal through the same machine again: its state, and whether it decides the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .causes import FaultCause
from .codec import event_from_json, to_json
from .machine import step
from .policy import Policy
from .state import State


def replay(events: Iterable[tuple[float, str, Mapping[str, object]]], policy: Policy) -> State:
    """``events`` are (Unix time, name, data) in the order in which they were journaled.

    Raises:
        UnknownRecord: an event that cannot be read.
    """
    state = State()
    for _before, after in replayed(events, policy):
        state = after
    return state


def replayed(
    events: Iterable[tuple[float, str, Mapping[str, object]]], policy: Policy
) -> Iterator[tuple[State, State]]:
    """As :func:`replay`: the states before and after each event."""
    before = State()
    for now, name, data in events:
        after, _ = step(before, event_from_json(name, data), policy, now)
        yield before, after
        before = after


def failures(before: State, after: State) -> Mapping[str, int]:
    """What an event has added to the failures of a run's past, by cause."""
    count = after.past.failures - before.past.failures
    cause = FaultCause.NODE_DOWN if before.fault is None else before.fault.cause
    return {cause.value: count} if count else {}


class Recorded(Protocol):
    """A line of a journal."""

    @property
    def time(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def data(self) -> Mapping[str, object]: ...
    @property
    def attempt(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Order:
    """An action as the journal holds it."""

    name: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where the journal and the machine part: after ``event``, one of the orders is another."""

    attempt: str
    time: float
    event: str
    journaled: Order | None
    recomputed: Order | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """How far the decisions of a run could be repeated."""

    events: int
    actions: int
    difference: Difference | None


def repeat(records: Sequence[Recorded], policy: Policy) -> Repetition:
    """Decide everything again, up to the first difference.

    Orders that are missing at the end of an attempt are none: its supervisor was killed.

    Raises:
        UnknownRecord: an event that cannot be read.
    """
    state = State()
    events, actions = 0, 0
    event: Recorded | None = None
    due: list[Order] = []
    for record in records:
        journaled = Order(record.name, record.data) if record.kind == "action" else None
        if record.kind == "event" and record.name == "AttemptStarted":
            due = []
        recomputed = due[0] if due else None
        if journaled != recomputed:
            difference = Difference(
                attempt=record.attempt,
                time=record.time,
                event=event.name if event is not None else "nothing",
                journaled=journaled,
                recomputed=recomputed,
            )
            return Repetition(events=events, actions=actions, difference=difference)
        if record.kind == "action":
            actions += 1
            due = due[1:]
        else:
            events += 1
            event = record
            state, orders = step(
                state, event_from_json(record.name, record.data), policy, record.time
            )
            due = [_journaled(type(order).__name__, to_json(order)) for order in orders]
    return Repetition(events=events, actions=actions, difference=None)


def _journaled(name: str, data: Mapping[str, object]) -> Order:
    """With JSON's idea of tuples and enums."""
    return Order(name, json.loads(json.dumps(data)))
