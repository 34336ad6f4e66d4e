"""Every n-th checkpoint is read again while ranks go on, by a niced process on the batch host."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from relight.answer import given

from ..decide.events import Event
from ..decide.storage_events import CheckpointDrilled

_log: Final = logging.getLogger(__name__)


class Drill:
    """Reports CheckpointDrilled by ``emit``. One at a time: a slow one makes others be left out.

    Attributes:
        saw: the last result, for people; empty before there is one.
    """

    def __init__(self, directory: Path, every: int, emit: Callable[[Event], None]) -> None:
        self._directory = directory
        self._every = every
        self._emit = emit
        self.saw: tuple[str, ...] = ()
        self._committed = 0
        self._under_way: int | None = None

    def due(self, step: int) -> bool:
        """Whether the checkpoint that was committed now is one to be read."""
        self._committed += 1
        if not self._every or self._committed % self._every:
            return False
        if self._under_way is not None:
            _log.warning(
                "checkpoint %d is not drilled: %d is still being read", step, self._under_way
            )
            return False
        self._under_way = step
        return True

    async def run(self, step: int) -> None:
        """Reads it. Cancelling ends the process."""
        begun = time.monotonic()
        command = (sys.executable, "-P", "-m", "relight.storage.drill", self._directory, str(step))
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            self._under_way = None
            _log.warning("checkpoint %d is not drilled: %s", step, error)
            return
        try:
            output, _ = await process.communicate()
        finally:
            self._under_way = None
            if process.returncode is None:
                process.kill()
        answer = given(output)
        if answer is None:
            _log.warning("the drill of checkpoint %d ended with %d", step, process.returncode)
            return
        damage = json.loads(answer)
        if damage is not None:
            seconds = time.monotonic() - begun
            result = f"is damaged: {damage}" if damage else "is whole"
            self.saw = (f"drill: checkpoint {step} was read again and {result}",)
            self._emit(CheckpointDrilled(step=step, damage=damage, seconds=seconds))
        else:
            self.saw = (
                f"drill: checkpoint {step} was deleted, by checkpoint.keep, before it was read",
            )
