"""What ranks say, and to whom of the supervisor it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine

from relight.storage.receipt import Receipt

from ..decide.events import Event
from ..messages import Message, number
from .lookout import Lookout
from .ranks import Ranks
from .refusals import Refusals, refusal_of
from .saves import Saves, tier_failed
from .transfers import Transfers


class Words:
    """Passes each word of a rank on (see ``messages``)."""

    def __init__(
        self,
        ranks: Ranks,
        saves: Saves,
        lookout: Lookout,
        transfers: Transfers,
        refusals: Refusals,
        emit: Callable[[Event], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
        on_signal: Callable[[str], None],
    ) -> None:
        self._ranks = ranks
        self._saves = saves
        self._lookout = lookout
        self._transfers = transfers
        self._refusals = refusals
        self._emit = emit
        self._spawn = spawn
        self._on_signal = on_signal

    def hear(self, rank: int, body: Message) -> None:
        self._lookout.on_word(rank, body)
        self._transfers.on_word(rank, body, time.monotonic())
        match body["type"]:
            case "joined":
                self._saves.joined(rank)
            case "imported":
                self._spawn(self._ranks.stand_by(body["modules"]))
            case "restored":
                self._saves.restored(rank, body)
            case "beat" | "finished":
                self._saves.steps[rank] = number(body, "step")
            case "held":
                self._saves.held(rank, body)
            case "saved":
                receipt = Receipt.from_json(str(body["receipt"]))
                self._transfers.saved(receipt, time.monotonic(), durable="tier" not in body)
                self._saves.saved(receipt, body)
            case "save_failed":
                node = self._node_of(rank)
                self._saves.save_failed(body, self._ranks.generation, rank, node)
            case "tier_failed":
                self._emit(tier_failed(body, self._ranks.generation, self._node_of(rank)))
            case "restore_failed":
                refusal = refusal_of(body, self._ranks.generation, self._node_of(rank) or "?")
                self._spawn(self._refusals.judge(refusal))
            case "signalled":
                self._on_signal(str(body.get("signal")))

    def _node_of(self, rank: int) -> str | None:
        return next(iter(self._ranks.nodes_of((rank,))), None)
