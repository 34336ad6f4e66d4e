"""Decisions are repeated from the journal, and what differs is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from promises import step

from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.decide.codec import (
    UnknownRecord,
    event_from_json,
    finish_from_json,
    to_json,
)
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    PreflightFinished,
    RankExited,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.replay import repeat, replay
from relight.resilience.decide.state import Phase, State
from relight.resilience.supervise.journal import Kind, Record

POLICY = Policy(nodes=2, tasks_per_node=1)
BEGIN = AttemptStarted(
    attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2"), batch_node="n1"
)
STORY: tuple[Event, ...] = (
    BEGIN,
    PreflightFinished(bad={}),
    RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2),
    RankExited(generation=1, rank=0, node="n1", code=3, tail=("no idea",)),
    RanksStopped(generation=1),
)


def record(kind: Kind, name: str, data: object, time: float = 0.0) -> Record:
    return Record(time, kind, name, json.loads(json.dumps(data)), "7.0")


def journal(story: Sequence[Event]) -> list[Record]:
    """What a supervisor would have written."""
    state, records = State(), []
    for event in story:
        records.append(record("event", type(event).__name__, to_json(event)))
        state, actions = step(state, event, POLICY, 0.0)
        records += [record("action", type(one).__name__, to_json(one)) for one in actions]
    return records


def test_the_same_journal_gives_the_same_decisions() -> None:
    done = repeat(journal(STORY), POLICY)
    assert (done.events, done.actions, done.difference) == (5, 4, None)


def test_another_policy_is_found_at_its_first_decision() -> None:
    done = repeat(journal(STORY), Policy(nodes=2, tasks_per_node=1, failures=0))
    difference = done.difference
    assert difference is not None
    assert difference.event == "RanksStopped"
    assert difference.journaled is not None
    assert difference.recomputed is not None
    assert (difference.journaled.name, difference.recomputed.name) == ("StartRanks", "Finish")


def test_an_order_too_many_and_one_too_few_are_found() -> None:
    records = journal(STORY)
    extra = [*records, record("action", "StopRanks", {"reason": "x"})]
    found = repeat(extra, POLICY).difference
    assert found is not None
    assert found.recomputed is None
    lacking = repeat([one for one in records if one.name != "StopRanks"], POLICY).difference
    assert lacking is not None
    assert (lacking.journaled, lacking.event) == (None, "RankExited")


def test_a_journal_without_its_begin_differs_at_once() -> None:
    found = repeat(journal(STORY)[1:], POLICY).difference
    assert found is not None
    assert found.event == "nothing"


def test_a_supervisor_that_was_killed_before_it_wrote_its_orders_differs_in_nothing() -> None:
    cut = journal(STORY)[:-1]
    assert repeat(cut, POLICY).difference is None
    resumed = [*cut, *journal([replace(BEGIN, attempt="7.1")])]
    assert repeat(resumed, POLICY).difference is None


def test_the_state_is_rebuilt() -> None:
    events = ((one.time, one.name, one.data) for one in journal(STORY) if one.kind == "event")
    assert replay(events, POLICY).phase is Phase.STARTING


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("Unheard", {}),
        ("RanksStopped", {}),
        ("RanksStopped", {"generation": 1, "colour": "red"}),
        ("NodesProbed", {"answered": "n1", "silent": {}}),
        ("StopRequested", {"cause": "bad luck", "kill_at": None, "evidence": "x"}),
    ],
)
def test_an_event_that_cannot_be_read_is_said(name: str, data: dict[str, object]) -> None:
    with pytest.raises(UnknownRecord):
        event_from_json(name, data)


def test_an_end_is_read_as_it_was_written() -> None:
    end = Finish(outcome=Outcome.FAILED, exit_code=1, cause="exited", reason="x", tail=("y",))
    assert finish_from_json(json.loads(json.dumps(to_json(end)))) == end
    with pytest.raises(UnknownRecord, match="Finish"):
        finish_from_json({"outcome": "unheard of"})
