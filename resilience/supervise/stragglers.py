"""Ranks whose own part of a step takes longer than that of their peers. Pure; times are in seconds.

A window is compared as a whole: the mean of a rank against the median of all. A rank that makes the
step a tenth longer in several windows in a row is a straggler (Greyhound, ATC'25, has the same
limit). Whether its node is why: its own past tells, or that all ranks of the node are slow alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from ..messages import Message

SHARE: Final = 0.1  # of the step
WINDOW_S: Final = 10.0
WINDOWS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A node with ranks that are slow; ``by_node``: the node is why, and not the ranks' work."""

    node: str
    ranks: tuple[int, ...]
    detail: str
    by_node: bool


@dataclass(slots=True)
class _Own:
    """One rank: the window at hand, and what is left of those before."""

    own_s: float = 0.0
    whole_s: float = 0.0
    beats: int = 0
    mean_s: float = 0.0
    noticeable_s: float = 0.0
    best_s: float = float("inf")  # of the windows before the slow ones
    slow: int = 0  # windows in a row

    @property
    def worsened(self) -> bool:
        return self.best_s < float("inf") and self.mean_s > self.best_s + self.noticeable_s


@dataclass(slots=True)
class Stragglers:
    """One generation."""

    _world_size: int = field(default=0, init=False)
    _ranks: dict[int, _Own] = field(default_factory=dict, init=False)
    _over: float = field(default=0.0, init=False)
    _said: dict[str, Straggler] = field(default_factory=dict, init=False)

    def begin(self, now: float, world_size: int) -> None:
        """Nothing is known of these ranks; the first window also compiles and warms up."""
        self._world_size = world_size
        self._ranks.clear()
        self._said.clear()
        self._over = now + WINDOW_S

    def on_word(self, rank: int, word: Message) -> None:
        """What a rank says of its steps (see ``messages``)."""
        own_s, whole_s = word.get("own_s"), word.get("step_s")
        if word["type"] == "beat" and isinstance(own_s, float) and isinstance(whole_s, float):
            own = self._ranks.setdefault(rank, _Own())
            own.own_s += own_s
            own.whole_s += whole_s
            own.beats += 1

    @property
    def said(self) -> tuple[str, ...]:
        """For people: who is slow now."""
        return tuple(one.detail for one in self._said.values())

    def look(self, now: float, node_of: Mapping[int, str]) -> tuple[Straggler, ...]:
        """The nodes that have turned out to be slow at the end of a window; each is told once."""
        if now < self._over:
            return ()
        self._over = now + WINDOW_S
        whole = len(self._ranks) == self._world_size > 1
        if whole and all(own.beats for own in self._ranks.values()):
            self._compare()
        for own in self._ranks.values():
            own.own_s, own.whole_s, own.beats = 0.0, 0.0, 0
        found = self._by_node(node_of)
        new = tuple(one for node, one in found.items() if node not in self._said)
        self._said = found
        return new

    def _compare(self) -> None:
        for own in self._ranks.values():
            own.mean_s = own.own_s / own.beats
            own.noticeable_s = SHARE * own.whole_s / own.beats
        middle_s = median(own.mean_s for own in self._ranks.values())
        for own in self._ranks.values():
            if own.mean_s > middle_s + own.noticeable_s:
                own.slow += 1
            else:
                own.slow = 0
                own.best_s = min(own.best_s, own.mean_s)

    def _by_node(self, node_of: Mapping[int, str]) -> dict[str, Straggler]:
        slow: dict[str, list[int]] = {}
        here: dict[str, int] = {}
        for rank, own in sorted(self._ranks.items()):
            node = node_of.get(rank, "?")
            here[node] = here.get(node, 0) + 1
            if own.slow >= WINDOWS:
                slow.setdefault(node, []).append(rank)
        return {node: self._straggler(node, ranks, here[node]) for node, ranks in slow.items()}

    def _straggler(self, node: str, ranks: list[int], here: int) -> Straggler:
        middle_s = median(own.mean_s for own in self._ranks.values())
        worst_s = max(self._ranks[rank].mean_s for rank in ranks)
        worsened = any(self._ranks[rank].worsened for rank in ranks)
        by_node = worsened or len(ranks) == here > 1
        why = "" if by_node else "; since its start, so it may be the work that it has"
        return Straggler(
            node=node,
            ranks=tuple(ranks),
            detail=f"ranks {ranks} on {node} take {worst_s:.3g} s of their own for a step, the "
            f"median of all is {middle_s:.3g} s{why}",
            by_node=by_node,
        )
