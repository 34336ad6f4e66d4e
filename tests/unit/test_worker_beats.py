"""How often agents and programs say that they live."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest

from relight.resilience.messages import Message
from relight.resilience.worker.beats import VARIABLE, agent_beat_s, beat_of_world, beat_s
from relight.resilience.worker.boundary import Boundary
from relight.resilience.worker.line import Line
from relight.resilience.worker.listener import Listener
from relight.resilience.worker.own_time import OwnTime
from relight.resilience.worker.signals import StopSignals
from relight.resilience.worker.transfer import Transfer


@pytest.mark.parametrize(
    ("world_size", "seconds"), [(1, 1.0), (1000, 1.0), (2500, 2.5), (10_000, 5.0), (100_000, 5.0)]
)
def test_in_a_large_world_each_rank_speaks_less_often(world_size: int, seconds: float) -> None:
    assert beat_of_world(world_size) == seconds


def test_the_agent_that_speaks_for_its_node_keeps_its_pace() -> None:
    large = {VARIABLE: "5.0"}
    assert agent_beat_s(large, leader=True) == 1.0
    assert agent_beat_s(large, leader=False) > beat_s(large) == 5.0
    assert agent_beat_s({}, leader=False) == beat_s({}) == 1.0


class Rank:
    """One that beats every two seconds, and looks four times a second whether it is time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 50.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setenv(VARIABLE, "2.0")
        self.said: list[Message] = []
        self.boundary, self.transfer = Boundary(None), Transfer()
        line = cast(Line, SimpleNamespace(send=self.said.append, transfer=self.transfer))
        signals = cast(StopSignals, None)
        changed = threading.Condition()
        self.listener = Listener(line, self.boundary, OwnTime(), changed, signals, 0)

    def turns(self, seconds: float) -> list[tuple[object, ...]]:
        """What it says meanwhile: the word, and of what moves, for how long and how much."""
        self.said.clear()
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s += 0.25
            self.listener._beat(self.now_s)
        return [
            (word["type"], *(moving[name] for name in ("seconds", "done_bytes")))
            if isinstance(moving := word.get("moving"), dict)
            else (word["type"],)
            for word in self.said
        ]


def test_what_moves_is_told_with_the_beats_unless_it_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = Rank(monkeypatch)
    assert rank.turns(5) == []
    with rank.transfer.shown("restore", 7, 100) as advance:
        assert rank.turns(0.75) == [], "it may be over in a second"
        advance(10)
        assert rank.turns(3) == [("moving", 1.0, 10), ("moving", 3.0, 10)]
    rank.boundary.begin(7, rank.now_s, restored=True)
    assert rank.turns(9) == [("beat",), ("beat",)], "no step is done"
    rank.boundary.step_done()
    assert rank.turns(0.25) == [("beat",)]
    with rank.transfer.shown("save", 8, 100) as advance:
        advance(20)
        advance(1)
        assert rank.turns(4) == [("beat", 2.0, 21), ("beat", 4.0, 21)], "no word more"
        assert rank.said[0]["moving"] == {
            "what": "save",
            "step": 8,
            "total_bytes": 100,
            "done_bytes": 21,
            "seconds": 2.0,
        }
    rank.boundary.step_done()
    assert rank.turns(2) == [("beat",)]
