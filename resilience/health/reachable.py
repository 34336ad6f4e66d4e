"""Who is cut off, by whom each node asked and who answered (pure).

Nodes that have reached one another are a group. The group of most nodes are the witnesses: what
anybody else did not reach says nothing, so that a node between two that are cut off is not accused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .peers import REACHED, UNREACHED

MIN_WITNESSES: Final = 2

Facts = Mapping[str, str]


@dataclass(slots=True)
class _Asked:
    """The nodes that one has asked, and those that have asked it."""

    reached: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    reached_by: list[str] = field(default_factory=list)
    unreached_by: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CutOff:
    """Not ``proven``: no witness says so, and it may be the others or all."""

    node: str
    evidence: str
    proven: bool


def cut_off(facts: Mapping[str, Facts]) -> Iterator[CutOff]:
    """The nodes that the witnesses do not reach, or that reach none of them."""
    asked = _asked(facts)
    groups = _groups(asked)
    most = next((group for group in groups if len(group) * 2 > len(asked)), frozenset[str]())
    for group in groups:
        if group is most:
            yield from _one_way(asked, most)
            continue
        silent = sorted({peer for node in group for peer in _silent(asked[node])} & most)
        for node in sorted(group):
            if len(silent) >= MIN_WITNESSES:
                who = "it" if len(group) == 1 else f"its group of {len(group)} nodes"
                yield CutOff(node, f"{who} and {_names(silent)} do not reach each other", True)
            elif len(group) == 1 and len(own := _silent(asked[node])) >= MIN_WITNESSES:
                yield CutOff(node, f"it and {_names(own)} do not reach each other", False)


def _one_way(asked: Mapping[str, _Asked], most: frozenset[str]) -> Iterator[CutOff]:
    """Of those that are linked, the ones that reach nobody, or are reached by nobody."""
    for node in sorted(most):
        it = asked[node]
        sound = [peer for peer in it.unreached if peer in most and asked[peer].reached_by]
        askers = [peer for peer in it.unreached_by if peer in most and asked[peer].reached]
        if not it.reached and len(sound) >= MIN_WITNESSES:
            yield CutOff(node, f"it reached none of {_names(sound)}", True)
        elif not it.reached_by and len(askers) >= MIN_WITNESSES:
            yield CutOff(node, f"none of {_names(askers)} reached it", True)


def _asked(facts: Mapping[str, Facts]) -> dict[str, _Asked]:
    asked: dict[str, _Asked] = defaultdict(_Asked)
    for node, found in facts.items():
        asked[node].reached = found.get(REACHED, "").split()
        asked[node].unreached = found.get(UNREACHED, "").split()
        for peer in asked[node].reached:
            asked[peer].reached_by.append(node)
        for peer in asked[node].unreached:
            asked[peer].unreached_by.append(node)
    return dict(asked)


def _groups(asked: Mapping[str, _Asked]) -> list[frozenset[str]]:
    groups: list[frozenset[str]] = []
    left = dict.fromkeys(asked)
    while left:
        group, fresh = set[str](), [next(iter(left))]
        while fresh:
            node = fresh.pop()
            if node in left:
                del left[node]
                group.add(node)
                fresh += [*asked[node].reached, *asked[node].reached_by]
        groups.append(frozenset(group))
    return groups


def _silent(it: _Asked) -> list[str]:
    return list(dict.fromkeys([*it.unreached_by, *it.unreached]))


def _names(nodes: list[str]) -> str:
    return ", ".join(nodes)
