"""Which ranks are slower than their peers, and whether their node is why."""

from __future__ import annotations

from collections.abc import Mapping

from relight.resilience.supervise.stragglers import WINDOW_S, WINDOWS, Straggler, Stragglers

PLACES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
EVEN = dict.fromkeys(PLACES, 1.0)


def beat(own_s: float | None, step_s: float = 2.0) -> dict[str, object]:
    whole_s = None if own_s is None else step_s
    return {"type": "beat", "step": 1, "own_s": own_s, "step_s": whole_s}


class Story:
    """Four ranks on two nodes, window after window."""

    def __init__(self, ranks: int = 4) -> None:
        self.ranks = Stragglers()
        self.ranks.begin(0.0, ranks)
        self.now = 0.0

    def window(self, own_s: Mapping[int, float | None]) -> tuple[Straggler, ...]:
        for rank, mean_s in own_s.items():
            self.ranks.on_word(rank, beat(mean_s))
        self.now += WINDOW_S
        return self.ranks.look(self.now, PLACES)

    def windows(self, own_s: Mapping[int, float | None], count: int) -> tuple[Straggler, ...]:
        found: tuple[Straggler, ...] = ()
        for _ in range(count):
            found = self.window(own_s)
        return found


def test_a_rank_that_becomes_slow_and_stays_so_is_told_once() -> None:
    story = Story()
    assert story.windows(EVEN, 5) == ()
    slow = {**EVEN, 3: 1.25}
    assert story.windows(slow, WINDOWS - 1) == ()
    (one,) = story.window(slow)
    assert (one.node, one.ranks, one.by_node) == ("n2", (3,), True)
    assert "1.25 s of their own for a step" in one.detail
    assert story.ranks.said == (one.detail,)
    assert story.window(slow) == ()
    assert story.windows(EVEN, 1) == ()
    assert not story.ranks.said, "it is over"


def test_a_slow_moment_is_none_of_ours() -> None:
    story = Story()
    for _ in range(5):
        assert story.windows({**EVEN, 3: 2.0}, WINDOWS - 1) == ()
        assert story.window(EVEN) == ()


def test_a_tenth_is_no_difference() -> None:
    assert Story().windows({**EVEN, 3: 1.09}, 9) == ()
    quick = dict.fromkeys(PLACES, 0.0001)
    assert Story().windows({**quick, 3: 0.0009}, 9) == (), "less than the clock can tell"


def test_a_rank_that_was_always_slow_may_have_more_to_do() -> None:
    (one,) = Story().windows({**EVEN, 0: 1.5}, WINDOWS)
    assert (one.node, one.by_node) == ("n1", False)
    assert "since its start" in one.detail


def test_a_node_all_of_whose_ranks_are_slow_is_slow() -> None:
    story = Story()
    story.ranks.begin(0.0, 6)
    six = dict.fromkeys(range(6), 1.0) | {2: 1.5, 3: 1.6}
    for _ in range(WINDOWS):
        for rank, own_s in six.items():
            story.ranks.on_word(rank, beat(own_s))
        story.now += WINDOW_S
        found = story.ranks.look(story.now, {**PLACES, 4: "n3", 5: "n3"})
    assert [(one.node, one.ranks, one.by_node) for one in found] == [("n2", (2, 3), True)]


def test_nobody_is_compared_with_the_absent() -> None:
    story = Story()
    assert story.windows({0: 1.0, 1: 1.0, 3: 9.0}, 9) == (), "rank 2 has said nothing"
    assert story.windows({**EVEN, 2: None, 3: 9.0}, 9) == (), "it does no step"
    assert Story(ranks=1).windows({0: 1.0}, 9) == ()


def test_a_new_generation_begins_with_nothing_against_it() -> None:
    story = Story()
    story.windows({**EVEN, 3: 2.0}, WINDOWS)
    story.ranks.begin(story.now, 4)
    assert story.ranks.said == ()
    assert story.windows({**EVEN, 3: 2.0}, WINDOWS - 1) == ()
