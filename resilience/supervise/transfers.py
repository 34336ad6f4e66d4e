"""How far the saves and restores of the ranks are, as they tell. Pure; times are in seconds.

For people only: no decision needs it, so it is not in the journal. A word costs the same however
many ranks there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from relight.storage.receipt import Receipt

from ..messages import Message, number, text

_WORTH_SHOWING_S: Final = 1.0  # of copies; ranks themselves say nothing of what is shorter
_COPY: Final = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What goes on, of all ranks that have told of it.

    ``what`` is "save", "restore", or "copy": from the nodes' tiers to the checkpoint directory.
    ``left_s`` is until the slowest is through, by its mean speed; None while it has done nothing.
    It has a name only where it is one of several.
    """

    what: str
    step: int
    done_bytes: int
    total_bytes: int
    seconds: float
    bytes_per_s: float
    left_s: float | None
    ranks: int
    ranks_done: int
    slowest_rank: int | None
    slowest_node: str | None


@dataclass(slots=True)
class _Rank:
    what: str
    step: int
    total_bytes: int
    begun: float
    done_bytes: int = 0
    over: bool = False

    def end(self) -> None:
        self.done_bytes, self.over = self.total_bytes, True

    def left_s(self, now: float) -> float:
        if self.over:
            return 0.0
        if not self.done_bytes:
            return float("inf")
        rest = self.total_bytes - self.done_bytes
        return rest * (now - self.begun) / self.done_bytes


@dataclass(slots=True)
class Transfers:
    """Those of one generation."""

    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _copies: dict[int, _Rank] = field(default_factory=dict)

    def on_word(self, rank: int, word: Message, now: float) -> None:
        """What a rank says of them, or its agent (see ``messages``)."""
        moving = word.get("moving")
        if isinstance(moving, Mapping):
            self._ranks[rank] = _moving(moving, now)
        match word["type"]:
            case "restored" if rank in self._ranks:
                self._ranks[rank].end()
            case "save_failed" | "restore_failed":
                self._ranks.pop(rank, None)
                self._copies.pop(rank, None)

    def saved(self, receipt: Receipt, now: float, *, durable: bool) -> None:
        """A rank's shard is there; unless it is ``durable`` its copy has yet to be made."""
        known = self._ranks.get(receipt.rank)
        if known is not None and (known.what, known.step) == ("save", receipt.step):
            known.end()
        copy = self._copies.get(receipt.rank)
        if not durable:
            size_bytes = receipt.payload_bytes
            self._copies[receipt.rank] = _Rank(_COPY, receipt.step, size_bytes, now)
        elif copy is not None and copy.step <= receipt.step:
            copy.end()

    def begin(self) -> None:
        """Ranks have started, and have said nothing yet."""
        self._ranks.clear()
        self._copies.clear()

    def look(self, now: float, places: Mapping[int, str]) -> Transfer | None:
        """What goes on; None while nothing does, or nothing that takes long.

        ``places`` has the node of each rank that lives. What ranks do themselves comes before what
        their agents do for them.
        """
        alive = {rank: one for rank, one in self._ranks.items() if rank in places}
        return _sum(alive, now, places) or _sum(self._copies, now, places)


def _moving(word: Message, now: float) -> _Rank:
    seconds = word.get("seconds")
    return _Rank(
        what=text(word, "what"),
        step=number(word, "step"),
        total_bytes=number(word, "total_bytes"),
        begun=now - (seconds if isinstance(seconds, float) else 0.0),
        done_bytes=number(word, "done_bytes"),
    )


def _step(one: _Rank) -> int:
    return one.step


def _sum(ranks: Mapping[int, _Rank], now: float, places: Mapping[int, str]) -> Transfer | None:
    """Of the newest thing that is not over."""
    newest = max((one for one in ranks.values() if not one.over), key=_step, default=None)
    if newest is None:
        return None
    alike = (newest.what, newest.step)
    mine = {rank: one for rank, one in ranks.items() if (one.what, one.step) == alike}
    slowest = max(mine, key=lambda rank: (not mine[rank].over, mine[rank].left_s(now)))
    seconds = now - min(one.begun for one in mine.values())
    if seconds < _WORTH_SHOWING_S:
        return None
    done_bytes, left_s = sum(one.done_bytes for one in mine.values()), mine[slowest].left_s(now)
    named = len(mine) > 1
    return Transfer(
        what=newest.what,
        step=newest.step,
        done_bytes=done_bytes,
        total_bytes=sum(one.total_bytes for one in mine.values()),
        seconds=seconds,
        bytes_per_s=done_bytes / seconds,
        left_s=None if left_s == float("inf") else left_s,
        ranks=len(mine),
        ranks_done=sum(one.over for one in mine.values()),
        slowest_rank=slowest if named else None,
        slowest_node=places.get(slowest) if named else None,
    )
