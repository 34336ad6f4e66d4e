"""What ranks could not restore: is it the checkpoint, or the node that reads it?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.storage.verify import verify_shard

from ..decide.events import CheckpointRefused, Event
from ..messages import Message, number

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a rank on ``node`` said; ``file`` is the shard, None when it could not tell.

    ``lacking``: it has not the library that reads the checkpoint.
    """

    generation: int
    step: int
    file: str | None
    node: str
    reason: str
    lacking: bool = False


def refusal_of(body: Message, generation: int, node: str) -> Refusal:
    """What a ``restore_failed`` says."""
    file = body.get("file")
    return Refusal(
        generation=generation,
        step=number(body, "step"),
        file=file if isinstance(file, str) else None,
        node=node,
        reason=str(body.get("reason")),
        lacking=body.get("lacking") is True,
    )


class Refusals:
    """Reads again what ranks could not read, and reports CheckpointRefused by ``emit``.

    Each file is read once for a generation, in a thread of its own: a thousand ranks that refuse
    the same one do not keep the journal from being written. ``current`` is the generation that
    runs; of the ones before nothing is told.
    """

    def __init__(
        self, directory: Path, emit: Callable[[Event], None], current: Callable[[], int]
    ) -> None:
        self._directory = directory
        self._emit = emit
        self._current = current
        self._thread = ThreadPoolExecutor(1, "verify")
        self._generation = 0
        self._sound: dict[tuple[int, str | None, bool], asyncio.Future[bool]] = {}
        self._told: set[tuple[int, str | None]] = set()

    def close(self) -> None:
        """What is not read yet is not read any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def judge(self, refusal: Refusal) -> None:
        """Damage is told once for a checkpoint, a file that others can read once for each node."""
        if refusal.generation != self._generation:
            self._generation = refusal.generation
            self._sound.clear()
            self._told.clear()
        place = refusal.step, refusal.file, refusal.lacking
        if place not in self._sound:
            loop = asyncio.get_running_loop()
            self._sound[place] = loop.run_in_executor(self._thread, self._is_sound, refusal)
        sound = await asyncio.shield(self._sound[place])
        news = refusal.step, refusal.node if sound else None
        if refusal.generation != self._current() or news in self._told:
            return
        self._told.add(news)
        self._emit(
            CheckpointRefused(
                generation=refusal.generation,
                step=refusal.step,
                reason=refusal.reason,
                node=refusal.node,
                sound=sound,
                lacking=refusal.lacking,
            )
        )

    def _is_sound(self, refusal: Refusal) -> bool:
        if refusal.generation != self._current():
            return True  # nobody asks any more
        if refusal.lacking:
            return True  # nothing was read
        try:
            return verify_shard(self._directory, refusal.step, refusal.file)
        except (OSError, RelightError) as error:
            _log.warning("checkpoint of step %d cannot be judged: %s", refusal.step, error)
            return True  # what cannot be read at all now is not discarded for ever
