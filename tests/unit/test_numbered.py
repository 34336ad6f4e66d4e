"""A conversation over connections that break anywhere: all is heard once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.messages import decode, encode, number
from relight.resilience.numbered import Numbered


@given(st.lists(st.sampled_from(["say", "deliver", "beat", "mention", "break"]), max_size=60))
def test_nothing_is_lost_and_nothing_is_heard_twice(acts: list[str]) -> None:
    here, there = Numbered(), Numbered()
    wire: list[bytes] = []  # what is on its way
    heard: list[int] = []
    said = 0

    def deliver(data: bytes) -> None:
        for line in data.splitlines():
            message = decode(line)
            if there.is_new(message) and message["type"] == "word":
                heard.append(number(message, "word"))

    def come_again() -> None:
        """Over a new connection each end first says what it has got."""
        wire.clear()
        here.is_new({"type": "welcome", "got": there.heard})
        wire.append(here.missed())

    for act in acts:
        match act:
            case "say":
                said += 1
                wire.append(here.say(encode({"type": "word", "word": said})))
            case "deliver":
                if wire:
                    deliver(wire.pop(0))
            case "beat":
                here.is_new(decode(there.beat()))
            case "mention":
                here.is_new({"type": "word of no weight", **there.confirmation()})
            case _:
                come_again()
    come_again()
    deliver(wire.pop())
    assert heard == list(range(1, said + 1))
    here.is_new(decode(there.beat()))
    if said:
        assert here.missed() == b"", "what is confirmed need not be kept"
