"""Ranks that all fail alike: it is the program, whatever a rule says of nodes."""

from __future__ import annotations

import re

import pytest
from promises import step

from relight.resilience.decide.actions import Action, Finish, Outcome, StartRanks, StopRanks
from relight.resilience.decide.causes import FaultCause
from relight.resilience.decide.events import (
    AttemptStarted,
    CheckpointCommitted,
    Event,
    RankExited,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.rules import Blame, Budget, Rule
from relight.resilience.decide.state import Phase, State


def rule(word: str, cause: FaultCause, **more: object) -> Rule:
    return Rule(id=word, cause=cause, lines=(re.compile(word),), **more)  # type: ignore[arg-type]


RULES = (
    rule("ImportError", FaultCause.USER_ERROR, budget=Budget.START_UP),
    rule("out of memory", FaultCause.GPU_MEMORY, budget=Budget.ONCE),
    rule("no device", FaultCause.GPU_LOST, blame=Blame.SUSPECT, budget=Budget.START_UP),
    rule("ECC", FaultCause.GPU_HARDWARE, blame=Blame.NODE),
    rule("Connection closed", FaultCause.COLLECTIVE_ABORTED, cascade=True),
    rule("port taken", FaultCause.RENDEZVOUS, budget=Budget.FREE),
)
POLICY = Policy(nodes=2, tasks_per_node=2, preflight=False, rules=RULES)
BEGIN = AttemptStarted(
    attempt="7.0", job_id="7", restart_count=0, nodes=("n1", "n2", "n3"), batch_node="n1"
)


def tell(events: list[Event], state: State | None = None) -> tuple[State, tuple[Action, ...]]:
    state = state or State()
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event, POLICY, 0.0)
    return state, actions


def fail(words: str, ranks: int = 4, generation: int = 1, *, stopped: bool = False) -> list[Event]:
    """The first rank fails; the others say the same, by themselves or while they are killed."""
    ends: list[Event] = [
        RankExited(
            generation=generation,
            rank=rank,
            node=f"n{rank // 2 + 1}",
            code=None if stopped and rank else 1,
            signal="SIGKILL" if stopped and rank else None,
            stopped=stopped and rank > 0,
            tail=("Traceback", f"[rank{rank}]: {words} at 0x7f{rank}" if words else "", ""),
        )
        for rank in range(ranks)
    ]
    started = RanksStarted(generation=generation, nodes=("n1", "n2"), world_size=4)
    return [started, *ends, RanksStopped(generation=generation)]


@pytest.mark.parametrize("stopped", [False, True])
def test_an_error_of_all_ranks_at_the_start_is_not_tried_again(stopped: bool) -> None:
    state, actions = tell([BEGIN, *fail("ImportError: no torch", stopped=stopped)])
    end = actions[-1]
    assert isinstance(end, Finish)
    assert (end.outcome, end.cause) == (Outcome.FAILED, "user error")
    assert "all 4 ranks, on all nodes, failed alike: it is the program" in end.reason
    assert not state.excluded


def test_an_error_of_one_node_is_tried_again() -> None:
    state, actions = tell([BEGIN, *fail("ImportError: no torch", ranks=2)])
    assert isinstance(actions[-1], StartRanks)
    assert state.fault is None


def test_an_error_that_no_rule_knows_is_the_programs_when_all_have_it() -> None:
    story = [BEGIN, *fail("OddError: 17"), *fail("OddError: 18", generation=2)]
    _, actions = tell(story)
    end = actions[-1]
    assert isinstance(end, Finish)
    assert (end.outcome, end.cause) == (Outcome.FAILED, "user error")


def test_once_something_is_saved_it_is_tried_once_more() -> None:
    saved = CheckpointCommitted(step=5, generation=1)
    state, actions = tell([BEGIN, saved, *fail("ImportError: no plugin")])
    assert isinstance(actions[-1], StartRanks)
    _, actions = tell(fail("ImportError: no plugin", generation=2), state)
    assert isinstance(actions[-1], Finish)


def test_a_named_cause_keeps_its_name_and_its_budget() -> None:
    state, actions = tell([BEGIN, *fail("out of memory")])
    assert isinstance(actions[-1], StartRanks)
    _, actions = tell(fail("out of memory", generation=2), state)
    end = actions[-1]
    assert isinstance(end, Finish)
    assert end.cause == "GPU out of memory"
    assert "failed alike" in end.reason
    state, _ = tell([BEGIN, *fail("port taken")])
    assert (state.phase, state.failures) == (Phase.STARTING, 0)


def test_weak_evidence_of_all_nodes_marks_none() -> None:
    state, _ = tell([BEGIN, *fail("no device")])
    assert not state.marks
    state, _ = tell([BEGIN, *fail("no device", ranks=1)])
    assert state.marks == {("n1", FaultCause.GPU_LOST)}


def test_what_names_a_node_is_believed() -> None:
    state, _ = tell([BEGIN, *fail("ECC")])
    assert state.excluded_nodes == ("n1",)


def test_an_echo_that_all_report_names_no_cause_of_its_own() -> None:
    state, actions = tell([BEGIN, *fail("Connection closed")])
    assert isinstance(actions[-1], StartRanks)
    assert "it is the program" not in actions[-1].reason
    assert not state.marks


def test_a_later_and_nearer_cause_begins_the_count_anew() -> None:
    echo, *rest = fail("Connection closed", ranks=2)[1:-1]
    root = fail("ImportError: no torch", ranks=1)[1]
    started = RanksStarted(generation=1, nodes=("n1", "n2"), world_size=4)
    state, _ = tell([BEGIN, started, echo, *rest, root])
    assert state.alike == 1


@pytest.mark.parametrize("words", ["", "step 25 loss 0.4"])
def test_ranks_that_say_nothing_of_an_error_have_nothing_in_common(words: str) -> None:
    state, _ = tell([BEGIN, *fail(words)[:-1]])
    assert state.alike == 0


@pytest.mark.parametrize(("words", "patience_s"), [("ImportError: x", 2.0), ("out of memory", 0.0)])
def test_only_before_the_first_save_and_only_for_errors_the_others_are_waited_for(
    words: str, patience_s: float
) -> None:
    _, actions = tell([BEGIN, *fail(words, ranks=1)[:-1]])
    assert isinstance(actions[0], StopRanks)
    assert actions[0].patience_s == patience_s
    saved = CheckpointCommitted(step=5, generation=1)
    _, actions = tell([BEGIN, saved, *fail(words, ranks=1)[:-1]])
    assert isinstance(actions[0], StopRanks)
    assert actions[0].patience_s == 0.0


def test_who_reports_the_end_of_another_leaves_that_time_to_say_why() -> None:
    """One that dies slowly has closed its connections before its end is known."""
    saved = CheckpointCommitted(step=5, generation=1)
    started, reporter, *_ = fail("Connection closed by peer")
    _, _, root, *_ = fail("ECC error")
    state, (wait,) = tell([BEGIN, saved, started, reporter])
    assert isinstance(wait, StopRanks)
    assert wait.patience_s == POLICY.others_say_s
    state, (stop,) = tell([root], state)
    assert isinstance(stop, StopRanks)
    assert stop.patience_s == 0.0, "the cause is known"
    assert state.fault is not None
    assert (state.fault.cause, state.fault.rank) == (FaultCause.GPU_HARDWARE, 1)
