"""The commits of one generation: tried again, waited for a while, and disowned by the next one.

Runs in the event loop; everything that touches the file system runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.storage.commit import commit
from relight.storage.errors import Fenced, SaveIncomplete
from relight.storage.layout import Incarnation
from relight.storage.receipt import Receipt

from ..decide.events import CheckpointCommitted, Event, SaveFailed, Superseded
from .stall import Stall

_log: Final = logging.getLogger(__name__)
SETTLE_LIMIT_S: Final = 30.0
_PAUSES_S: Final = (0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who commits, and the epoch that it holds of the checkpoint directory."""

    directory: Path
    incarnation: Incarnation
    epoch: int
    run: str = ""


@dataclass(frozen=True, slots=True)
class Save:
    """What all ranks have saved of a step, what it cost them, and whose copy was the only one."""

    step: int
    receipts: tuple[Receipt, ...]
    stall: Stall
    by_partner: tuple[int, ...] = ()


def superseded(error: Fenced, run: str) -> Superseded:
    """A later attempt of ``run`` goes on with it; another run is in its way."""
    if error.run in ("", run):
        return Superseded(reason=str(error))
    reason = (
        f"run {error.run} has taken {error.directory} over, and one directory serves one run: "
        "start again with another checkpoint.directory, or when that run has ended"
    )
    return Superseded(reason=reason, other_run=error.run)


class Commits:
    """Reports CheckpointCommitted, SaveFailed or Superseded by ``emit``.

    ``on_end`` hears of each save before that, with None when it was not committed.
    """

    def __init__(
        self,
        claim: Claim,
        emit: Callable[[Event], None],
        on_end: Callable[[Save | None], None],
    ) -> None:
        self._claim = claim
        self._emit = emit
        self._on_end = on_end
        self._steps: dict[asyncio.Task[None], int] = {}
        self._hanging: set[int] = set()
        self._disowned = False
        self._newest_step = -1
        self._committed = asyncio.Event()

    def add(self, save: Save) -> None:
        """Begin the commit of a complete save."""
        task = asyncio.create_task(self._commit(save))
        self._steps[task] = save.step
        task.add_done_callback(self._steps.pop)

    def disown(self) -> None:
        """A later generation takes the directory over, and makes these commits if they can be made.

        One that fails from now on is no failure of the run; one that succeeds is still a fact.
        """
        self._disowned = True

    async def made(self, step: int, limit_s: float) -> bool:
        """Wait for the commit of a step; False when it took too long."""
        try:
            async with asyncio.timeout(limit_s):
                while self._newest_step < step:
                    self._committed.clear()
                    await self._committed.wait()
        except TimeoutError:
            return False
        return True

    async def settle(self, limit_s: float) -> None:
        """Wait for the commits under way, but not for ever: the next attempt can make them too.

        One that hangs is told as a failed save, since nobody knows whether it will succeed.
        """
        if not self._steps or self._disowned:
            return
        limit_s = min(limit_s, SETTLE_LIMIT_S)
        await asyncio.wait(tuple(self._steps), timeout=limit_s)
        if self._disowned:
            return
        for step in set(self._steps.values()) - self._hanging:
            self._hanging.add(step)
            reason = f"its commit has not come to an end in {limit_s:.0f} s"
            self._emit(self._save_failed(step, reason, errno.ETIMEDOUT))

    async def _commit(self, save: Save) -> None:
        try:
            await self._commit_patiently(save)
        except (Fenced, SaveIncomplete, OSError) as error:
            self._failed(save.step, error)
            return
        if not self._disowned:
            # One that had to be tried again may come after a later one.
            self._newest_step = max(self._newest_step, save.step)
            self._committed.set()
            self._on_end(save)
        slowest = max(save.receipts, key=lambda receipt: receipt.seconds)
        self._emit(
            CheckpointCommitted(
                step=save.step,
                generation=self._claim.incarnation.generation,
                bytes=sum(receipt.payload_bytes for receipt in save.receipts),
                seconds=slowest.seconds,
                slowest_rank=slowest.rank if len(save.receipts) > 1 else None,
                stall_s=save.stall.stall_s,
                behind_s=save.stall.behind_s,
                staged_bytes=save.stall.staged_bytes,
                by_partner=save.by_partner,
            )
        )

    def _failed(self, step: int, error: Fenced | SaveIncomplete | OSError) -> None:
        if self._disowned:
            _log.info("an older generation's commit of step %d has ended: %s", step, error)
        elif isinstance(error, Fenced):
            self._emit(superseded(error, self._claim.run))
        else:
            _log.error("checkpoint of step %d is not committed: %s", step, error)
            self._on_end(None)
            number = error.errno if isinstance(error, OSError) else None
            self._emit(self._save_failed(step, str(error), number))

    def _save_failed(self, step: int, reason: str, number: int | None) -> SaveFailed:
        generation = self._claim.incarnation.generation
        return SaveFailed(step=step, reason=reason, errno=number, generation=generation)

    async def _commit_patiently(self, save: Save) -> None:
        """A file system that hiccups gets a few more chances."""
        claim = self._claim
        writer, epoch = claim.incarnation, claim.epoch
        for pause_s in (*_PAUSES_S, None):
            try:
                await asyncio.to_thread(
                    commit, claim.directory, save.step, writer, epoch, save.receipts, {}
                )
            except OSError as error:
                if pause_s is None:
                    raise
                _log.warning("checkpoint of step %d: %s; trying again", save.step, error)
                await asyncio.sleep(pause_s)
            else:
                return
