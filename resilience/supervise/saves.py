"""Checkpoints as the supervisor sees them: what to go on from, when to ask for one, who has saved.

Runs in the event loop; everything that touches the file system runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from relight.storage.choose import newest_valid
from relight.storage.commit import claim_epoch, commit_complete
from relight.storage.errors import Fenced, NoValidCheckpoint
from relight.storage.layout import Incarnation, manifest_path
from relight.storage.prune import prune
from relight.storage.receipt import Receipt
from relight.storage.set_aside import records

from ..config import RunConfig
from ..decide.events import Event, SaveFailed, Superseded
from ..decide.storage_events import MetricMissing, TierFailed
from ..messages import Message, number
from ..worker.interval import AUTO, EverySeconds, parse_interval
from .archiving import Archiving
from .commits import Claim, Commits, Save
from .common_step import CommonStep
from .draining import Draining
from .partners import Partners
from .restores import Restores
from .stall import Stall
from .tidying import Tidying
from .tier_copies import SavedShard

_log: Final = logging.getLogger(__name__)
ANSWER_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Restore:
    """What a generation starts from."""

    manifest: Path | None
    step: int | None
    size_bytes: int | None = None  # of values


class Saves:
    """The checkpoints of one generation at a time."""

    def __init__(
        self,
        config: RunConfig,
        emit: Callable[[Event], None],
        tell_programs: Callable[[Message], None],
    ) -> None:
        self._run = config.run_id
        self._directory = config.checkpoint.directory
        self._keep = config.checkpoint.keep
        interval = parse_interval(config.checkpoint.interval)
        self._auto = config.checkpoint.interval == AUTO
        self._every_s = interval.seconds if isinstance(interval, EverySeconds) else None
        self._world_size = config.world_size
        self._emit = emit
        self._tell = tell_programs
        self._tidying = Tidying(self._prune)
        self.archiving = Archiving(config, emit)
        self._beginning = threading.Lock()
        self._incarnation: Incarnation | None = None
        self._commits: Commits | None = None  # of the generation that has begun last
        self._receipts: defaultdict[int, dict[int, Receipt]] = defaultdict(dict)
        self._stalls: defaultdict[int, Stall] = defaultdict(Stall)  # by step
        self._draining = Draining(config.world_size)
        self.partners = Partners(config, emit, self._took)
        self._restores = Restores(0, config.world_size, None, emit, self.partners.moved)
        self._complete = -1  # the newest step that all ranks of this generation have saved
        self._joined: set[int] = set()
        self._first_word = asyncio.Event()
        self._agreements: dict[int, tuple[CommonStep, asyncio.Event]] = {}
        self._asks = 0
        self._last_save = 0.0
        self._pending = False
        self._fenced = False
        self._metric_seen: bool | None = None  # once the first commit tells
        self.steps: dict[int, int] = {}
        self.doubted: int | None = None  # the state after so many steps may be spoilt
        self.last_seconds: float | None = None

    async def begin(
        self, incarnation: Incarnation, *, world_size: int, committed_step: int
    ) -> Restore:
        """Fence older generations, adopt what they saved completely, choose what to restore.

        ``committed_step`` is the newest that this run is known to have committed, -1 for none.

        Raises:
            NoValidCheckpoint: there are checkpoints, none of them valid; or there were.
            ArchiveSilent: nothing valid is here, and the archive does not answer.
            OSError: the checkpoint directory does not work.
        """
        if self._commits is not None:
            self._commits.disown()  # before their epoch is a past one
        self._incarnation = incarnation
        self._world_size = world_size
        self._draining = Draining(world_size)
        self._complete = -1
        self._receipts.clear()
        self._stalls.clear()
        self._joined.clear()
        self._first_word.clear()
        self.steps.clear()
        self._agreements.clear()
        self._pending = False
        self._fenced = False
        claim = await asyncio.to_thread(self._claim, incarnation, committed_step)
        await self.archiving.fetch(claim.epoch)
        self.doubted = None
        restore = await asyncio.to_thread(self._choose, committed_step)
        self.archiving.restored(restore.step)
        self._restores = Restores(
            incarnation.generation,
            world_size,
            restore.size_bytes,
            self._emit,
            self.partners.moved,
        )
        self._commits = Commits(claim, self._tell_of_commit, partial(self._ended, claim))
        return restore

    def _claim(self, incarnation: Incarnation, committed_step: int) -> Claim:
        # One that a stop has given up goes on in its thread: it must not claim after the next one.
        with self._beginning:
            if committed_step >= 0 and not self._directory.is_dir():
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"checkpoint {committed_step} was committed in it, and it is not there now",
                    str(self._directory),
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            epoch = claim_epoch(self._directory, incarnation, self._run)
            for manifest in commit_complete(self._directory, epoch):
                _log.info("checkpoint of step %d was complete: committed now", manifest.step)
            return Claim(self._directory, incarnation, epoch, self._run)

    def _tell_of_commit(self, event: Event) -> None:
        if isinstance(event, Superseded):  # whatever these ranks still save is for nobody
            self._fenced = True
            self._draining.abandon()
        self._emit(event)

    def _choose(self, committed_step: int) -> Restore:
        newest = self.partners.chosen = newest_valid(self._directory)
        if newest is None and committed_step >= 0:
            lost = f"checkpoint {committed_step} was committed here and is gone"
            spoilt = [one for one in records(self._directory) if one.spoilt]
            lost += (
                f"; {spoilt[-1].path} was set aside: {spoilt[-1].reason}"
                if spoilt
                else "; was the folder moved?"
            )
            raise NoValidCheckpoint(str(self._directory), (lost,))
        if newest is None:
            return Restore(None, None)
        if newest.step < committed_step:
            _log.warning("checkpoint %d is gone, %d is the newest", committed_step, newest.step)
        path = manifest_path(self._directory, newest.step)
        return Restore(path, newest.step, newest.payload_bytes)

    # What ranks say

    def joined(self, rank: int) -> None:
        self._joined.add(rank)
        self._first_word.set()

    async def first_word(self, limit_s: float) -> bool:
        """Wait for the first rank that joins; False when none does."""
        try:
            async with asyncio.timeout(limit_s):
                await self._first_word.wait()
        except TimeoutError:
            return False
        return True

    @property
    def speaking(self) -> frozenset[int]:
        """The ranks whose program uses the API."""
        return frozenset(self._joined)

    def restored(self, rank: int, body: Message) -> None:
        self.steps[rank] = step = number(body, "step")
        self._restores.restored(rank, step, body)
        self._last_save = time.monotonic()

    def held(self, rank: int, message: Message) -> None:
        known = self._agreements.get(number(message, "ask"))
        if known is None:
            return
        agreement, agreed = known
        if agreement.answer(rank, number(message, "step")) is not None:
            agreed.set()

    def saved(self, receipt: Receipt, message: Message) -> None:
        """Note a receipt; with the last one of its step the checkpoint becomes valid.

        One of a shard that is in a node's tier yet says only that another will come.
        """
        if self._commits is None or receipt.incarnation != self._incarnation:
            return
        if self._fenced:
            return
        if receipt.step <= self._complete:
            return  # a copy that a later save has overtaken; the next generation may commit it
        durable = "tier" not in message
        self._draining.saved(receipt.step, receipt.rank, durable=durable)
        self._stalls[receipt.step] = self._stalls[receipt.step].told(message)
        if not durable:
            self.partners.saved(receipt.step, receipt.incarnation, receipt.rank)
            self._rescue()
            return
        receipts = self._receipts[receipt.step]
        receipts[receipt.rank] = receipt
        if len(receipts) == self._world_size:
            self._complete = receipt.step
            stall = self._stalls[receipt.step]
            self._forget_until(receipt.step)
            by_partner = self._draining.rescued(receipt.step)
            self._commits.add(Save(receipt.step, tuple(receipts.values()), stall, by_partner))

    def _forget_until(self, step: int) -> None:
        """Ranks save one step after the other: of those before nothing more can come."""
        for saved in (self._receipts, self._stalls):
            for past in [one for one in saved if one <= step]:
                del saved[past]

    async def committed(self, step: int, limit_s: float) -> bool:
        """Wait for the commit of a step of this generation; False when it took too long."""
        assert self._commits is not None  # ranks save only once a generation has begun
        return await self._commits.made(step, limit_s)

    async def settle(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        """Wait for the saves of this generation, but not for ever, nor longer than that."""
        await self._draining.settle(left_s)
        if self._commits is not None:
            await self._commits.settle(left_s())

    def _ended(self, claim: Claim, save: Save | None) -> None:
        if save is None:
            self.failed()
            return
        self._pending = False
        self._look_for_metric(save.receipts)
        self._last_save = time.monotonic()
        self.last_seconds = max(receipt.seconds for receipt in save.receipts)
        self._tell({"type": "committed", "step": save.step})
        self.partners.committed(save.step)
        self._tidying.ask(claim)
        self.archiving.committed(save.step)

    def _look_for_metric(self, receipts: tuple[Receipt, ...]) -> None:
        best = self._keep.best
        if best is None or self._metric_seen is not None:
            return
        logged = sorted({name for receipt in receipts for name in receipt.notes.metrics})
        self._metric_seen = best.metric in logged
        if not self._metric_seen:
            self._emit(MetricMissing(metric=best.metric, logged=tuple(logged)))

    def _prune(self, claim: Claim) -> None:
        try:
            prune(self._directory, self._keep, claim.epoch, claim.incarnation, self.doubted)
        except (Fenced, OSError) as error:
            _log.warning("old checkpoints stay for now: %s", error)

    # One common step

    async def agree(self, ranks: frozenset[int], limit_s: float) -> CommonStep:
        """Ask all ranks for a common step; without one when not all of them answered in time."""
        self._asks += 1
        agreement, agreed = CommonStep(self._asks, ranks), asyncio.Event()
        self._agreements[agreement.ask] = agreement, agreed
        self._tell({"type": "hold", "ask": agreement.ask})
        try:
            async with asyncio.timeout(limit_s):
                await agreed.wait()
        except TimeoutError:
            self._tell({"type": "release", "ask": agreement.ask})
        finally:
            self._agreements.pop(agreement.ask, None)
        return agreement

    def order_stop(self, agreement: CommonStep, reason: str) -> None:
        order = {"type": "stop_at", "ask": agreement.ask, "step": agreement.step}
        self._tell({**order, "reason": reason})

    def due(self, auto_s: float) -> bool:
        """Whether a save by the clock is due, which the supervisor decides for all ranks.

        ``auto_s`` is the interval for those who leave it to us.
        """
        if self._every_s is None or not self.can_be_ordered:
            return False
        every_s = auto_s if self._auto else self._every_s
        return time.monotonic() - self._last_save >= every_s

    @property
    def can_be_ordered(self) -> bool:
        """Whether all ranks do steps, and none of our saves is under way."""
        return not self._pending and len(self.steps) == self._world_size

    async def order_save(self, ranks: frozenset[int]) -> int | None:
        """Let all ranks save the next common step and go on; that step, None if they are silent."""
        self._pending = True
        agreement = await self.agree(ranks, ANSWER_LIMIT_S)
        if agreement.step is None:
            _log.warning("no save: ranks %s did not answer", agreement.missing)
            self.failed()
            return None
        self._tell({"type": "save_at", "ask": agreement.ask, "step": agreement.step})
        return agreement.step

    def lost(self, rank: int) -> None:
        """Nothing more is heard of a rank, nor of what its node has saved."""
        self._draining.lost(rank)
        self._rescue()

    def _took(self, task: int, shard: SavedShard) -> None:
        if self._incarnation is not None and shard.writer == self._incarnation.folder:
            self._draining.copied(shard.step, shard.rank, task)
            self._rescue()

    def _rescue(self) -> None:
        """What a lost node has saved is in the tier of its partner, which copies it now."""
        for step, rank, by in self._draining.rescue():
            assert self._incarnation is not None  # ranks save only once a generation has begun
            self.partners.drain(SavedShard(step, self._incarnation.folder, rank), by)

    def save_failed(self, body: Message, generation: int, rank: int, node: str | None) -> None:
        """A rank has no shard of a step, or the agent beside it could not copy that."""
        step = number(body, "step")
        if step <= self._complete:  # a later save has overtaken the copy: the state is saved
            self._emit(tier_failed({**body, "rank": rank}, generation, node))
            return
        self._draining.failed(step)
        self.failed()
        self._emit(save_failed(body, generation, node))

    def failed(self) -> None:
        """There will be no checkpoint of this step; the next one is due an interval later."""
        self._pending = False
        self._last_save = time.monotonic()


def save_failed(body: Message, generation: int, node: str | None) -> SaveFailed:
    """What a rank on ``node`` says of a save that failed, as an event."""
    number_ = body.get("errno")
    return SaveFailed(
        step=number(body, "step"),
        reason=str(body.get("reason")),
        node=node,
        errno=number_ if isinstance(number_, int) else None,
        generation=generation,
    )


def tier_failed(body: Message, generation: int, node: str | None) -> TierFailed:
    """What a rank on ``node`` says of its node's tier, as an event."""
    return TierFailed(
        generation=generation,
        rank=number(body, "rank"),
        node=node,
        reason=str(body.get("reason")),
    )
