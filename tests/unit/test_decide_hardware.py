"""A rank's words that point at hardware: its node is put to the test before it is used again."""

from __future__ import annotations

import re

import pytest
from promises import step

from relight.resilience.decide.actions import Action, ExcludeNode, ProbeNodes, StartRanks
from relight.resilience.decide.causes import FaultCause
from relight.resilience.decide.events import (
    AttemptStarted,
    Event,
    NodesProbed,
    PreflightFinished,
    RankExited,
    RanksStarted,
    RanksStopped,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.rules import Blame, Rule
from relight.resilience.decide.state import State

CONTAINED = Rule(
    id="contained",
    cause=FaultCause.GPU_HARDWARE,
    lines=(re.compile("Xid 94"),),
    blame=Blame.SUSPECT,
)
FATAL = Rule(id="fatal", cause=FaultCause.GPU_LOST, lines=(re.compile("Xid 79"),), blame=Blame.NODE)
POLICY = Policy(nodes=2, tasks_per_node=1, rules=(CONTAINED, FATAL))
NODES = ("n1", "n2", "n3")
RUNNING: tuple[Event, ...] = (
    AttemptStarted(attempt="7.0", job_id="7", restart_count=0, nodes=NODES, batch_node="n1"),
    PreflightFinished(bad={}),
    RanksStarted(generation=1, nodes=("n1", "n2"), world_size=2),
)
STOPPED = RanksStopped(generation=1)


def exited(word: str) -> RankExited:
    return RankExited(generation=1, rank=1, node="n2", code=1, tail=(word,))


def tell(*story: Event) -> tuple[State, tuple[Action, ...]]:
    state = State()
    actions: tuple[Action, ...] = ()
    for event in story:
        state, actions = step(state, event, POLICY, 0.0)
    return state, actions


def test_a_suspect_is_put_to_work_and_left_when_it_fails() -> None:
    story = (*RUNNING, exited("Xid 94"), STOPPED)
    assert tell(*story)[1] == (
        ProbeNodes(
            nodes=("n2",),
            work=True,
            reason="hardware may have failed, n2 is tested before it is used again",
        ),
    )
    wrong = {"n2": "gpu_product: GPU 3 multiplies to other bits than the rest"}
    state, actions = tell(*story, NodesProbed(answered=(), silent={}, failed=wrong))
    assert actions[0] == ExcludeNode(node="n2", cause="GPU hardware", reason=wrong["n2"])
    assert state.active == ("n1", "n3")
    assert (state.failures, state.node_failures) == (0, 1)


def test_a_suspect_that_passes_is_used_again() -> None:
    passed = NodesProbed(answered=("n2",), silent={})
    state, actions = tell(*RUNNING, exited("Xid 94"), STOPPED, passed)
    assert [type(action) for action in actions] == [StartRanks]
    assert (state.active, state.failures) == (("n1", "n2"), 1)


@pytest.mark.parametrize("word", ["Xid 79", "no idea"])
def test_no_test_where_the_word_is_enough_or_says_nothing_of_hardware(word: str) -> None:
    _, actions = tell(*RUNNING, exited(word), STOPPED)
    assert not [action for action in actions if isinstance(action, ProbeNodes)]
