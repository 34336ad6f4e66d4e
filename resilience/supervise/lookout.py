"""Ranks that hang, are slow, left out, or compute what is no number, as they tell."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..config import RunConfig
from ..decide.events import (
    Event,
    LossNotFinite,
    RankExited,
    RanksHung,
    RanksStarted,
    RanksStraggled,
    SaveFailed,
)
from ..decide.state import Phase, State
from ..messages import Message
from .left_out import LeftOut
from .not_finite import NotFinite
from .pace import Pace
from .quiet import Quiet
from .ranks import Ranks
from .stragglers import Stragglers


class Lookout:
    """Reports RanksHung, RanksStraggled, LossNotFinite and SaveFailed by ``emit``."""

    def __init__(
        self, config: RunConfig, pace: Pace, ranks: Ranks, emit: Callable[[Event], None]
    ) -> None:
        self._pace = pace
        self._ranks = ranks
        self._emit = emit
        self._stragglers = Stragglers()
        self._not_finite = NotFinite()
        self._quiet = Quiet(config.restart)
        self._left_out = LeftOut()
        self._alike = not config.components  # ranks of one kind, which take equally long

    @property
    def said(self) -> tuple[str, ...]:
        """For people: who is slow, whose loss is not finite, and whose shards will lack."""
        return (*self._stragglers.said, *self._not_finite.said, *self._left_out.said)

    @property
    def doubted(self) -> int | None:
        """The first state that may be spoilt, as far as losses tell."""
        return self._not_finite.doubted

    def on_word(self, rank: int, word: Message) -> None:
        """What a rank says (see ``messages``)."""
        self._pace.on_word(rank, word, time.monotonic())
        self._stragglers.on_word(rank, word)
        self._not_finite.on_word(rank, word)
        self._quiet.on_word(rank, word)
        self._left_out.on_word(rank, word)

    def on_event(self, event: Event) -> None:
        """Ranks have started, before they can say anything; or the program of one has ended."""
        now = time.monotonic()
        match event:
            case RanksStarted():
                self._stragglers.begin(now, event.world_size if self._alike else 0)
                self._not_finite.begin(event.restored_step or 0)
                self._quiet.begin(event.world_size)
                self._left_out.begin()
            case RankExited():
                self._pace.ended(event.rank, now)
                self._quiet.ended(event.rank)
                if event.code == 0 and not event.stopped:
                    self._left_out.ended(event.rank)

    def look(self, state: State) -> None:
        """What has come out by now."""
        now = time.monotonic()
        if state.phase is not Phase.RUNNING:
            return
        self._look_for_hangs(state, now)
        if lacking := self._left_out.look():
            self._emit(SaveFailed(step=None, reason=lacking, generation=state.generation))
        for one in self._stragglers.look(now, self._ranks.places):
            self._emit(
                RanksStraggled(
                    generation=state.generation,
                    ranks=one.ranks,
                    node=one.node,
                    detail=one.detail,
                    by_node=one.by_node,
                )
            )

        for lost in self._not_finite.look():
            self._emit(
                LossNotFinite(
                    generation=state.generation,
                    rank=lost.rank,
                    node=self._ranks.places.get(lost.rank, "?"),
                    since=lost.since,
                    detail=lost.detail,
                )
            )

    def _look_for_hangs(self, state: State, now: float) -> None:
        hang = self._pace.hang(now) or self._quiet.hang()
        if hang is None:
            return
        self._pace.begin(now, self._ranks.world_size)  # said once
        self._quiet.begin(self._ranks.world_size)
        self._emit(
            RanksHung(
                generation=state.generation,
                ranks=hang.ranks,
                nodes=self._ranks.nodes_of(hang.ranks),
                detail=hang.detail,
            )
        )
