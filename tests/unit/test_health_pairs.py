"""Two passes of pairs find the nodes that spoil a network."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from relight.resilience.health.pairs import Localisation, Pair, Rates, localise


def found(nodes: Sequence[str], dead: set[str], slow: frozenset[str] = frozenset()) -> Localisation:
    def measure(pairs: Sequence[Pair]) -> Rates:
        asked = [node for pair in pairs for node in pair]
        assert len(set(asked)) == len(asked)  # no node is in two pairs at once
        return {
            pair: None if dead & set(pair) else 1.0 if slow & set(pair) else 10.0 for pair in pairs
        }

    return localise(nodes, measure)


NODES = [f"n{number}" for number in range(9)]


def test_good_nodes() -> None:
    result = found(NODES, set())
    assert (result.bad, result.unclear) == ({}, ())
    assert len(result.rates) == 5  # four pairs, and the odd one with a good node


def test_a_dead_node_is_told_from_its_partner() -> None:
    result = found(NODES, {"n2"})
    assert result.bad == {"n2": "all-reduce with n0, a good node, did not end"}
    assert result.unclear == ()


def test_a_slow_node_is_slow_beside_the_median() -> None:
    assert found(NODES, set(), frozenset({"n5"})).bad == {
        "n5": "all-reduce with n1, a good node, reached only 1 GB/s"
    }


def test_the_odd_one_is_asked_too() -> None:
    assert list(found(NODES, {"n8"}).bad) == ["n8"]


def test_two_nodes_that_fail_leave_it_unclear_which() -> None:
    result = found(["n0", "n1"], {"n1"})
    assert (result.bad, result.unclear) == ({}, ("n0", "n1"))


def test_one_node_has_no_pair() -> None:
    assert found(["n0"], set()) == Localisation({}, (), {})


@given(st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_only_bad_nodes_are_called_bad(case: tuple[int, set[int]]) -> None:
    count, dead = case
    result = found([f"n{i}" for i in range(count)], {f"n{i}" for i in dead})
    assert set(result.bad) <= {f"n{i}" for i in dead}
    if len(dead) * 4 <= count:
        # Every suspect then has a good partner.
        assert set(result.bad) == {f"n{i}" for i in dead} or result.unclear
