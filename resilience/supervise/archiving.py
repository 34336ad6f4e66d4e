"""Checkpoints go to the archive while ranks go on, and come back from it when none is valid here.

A process on the batch host does both, for the libraries of object stores are heavy. One checkpoint
is copied at a time; one that has become too old meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from relight.answer import given
from relight.storage.epoch import check_holding
from relight.storage.errors import ArchiveSilent, NoValidCheckpoint
from relight.storage.fetch import wanted

from ..config import ArchiveConfig, RunConfig
from ..decide.actions import Outcome
from ..decide.events import Event
from ..decide.storage_events import CheckpointArchived, CheckpointFetched
from ..worker.secret_files import read_secrets

_log: Final = logging.getLogger(__name__)
END_LIMIT_S: Final = 600.0  # for the last copy, while the allocation is held
_FINAL: Final = (Outcome.COMPLETED, Outcome.FAILED, Outcome.STOPPED)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the process has printed; a ``failure`` when it did not come that far."""

    failure: str = ""
    damaged: tuple[str, ...] = ()
    step: int | None = None
    bytes: int | None = None
    seconds: float = 0.0


class Archiving:
    """Reports CheckpointArchived and CheckpointFetched by ``emit``; nothing without an archive."""

    def __init__(self, config: RunConfig, emit: Callable[[Event], None]) -> None:
        self._archive = config.checkpoint.archive
        self._directory = config.checkpoint.directory
        self._env = config.env
        self._secret_files = config.secret_files
        self._emit = emit
        # The first of each attempt is copied: attempts may be shorter than so many commits.
        self._commits = -1
        self._newest: int | None = None
        self._asked: int | None = None  # is copied next
        self._tried: int | None = None
        self._task: asyncio.Task[None] | None = None

    def restored(self, step: int | None) -> None:
        """Ranks go on from this step: it is the newest there is."""
        self._newest = step

    def committed(self, step: int) -> None:
        """A checkpoint is there; every so many of them is copied."""
        self._newest = step if self._newest is None else max(self._newest, step)
        self._commits += 1
        if self._archive is not None and self._commits % self._archive.every == 0:
            self._copy(self._archive, step)

    async def drop(self, step: int) -> None:
        """The run goes back behind this step: what is from then on must not come back."""
        if self._archive is None:
            return
        self._asked = self._newest = None
        await self._stop()
        answer = await self._run("drop", self._archive.url, str(step))
        if answer.failure:
            failure = f"spoilt checkpoints may still be there: {answer.failure}"
            self._emit(CheckpointArchived(step=step, failure=failure))

    async def fetch(self, epoch: int) -> None:
        """Bring back what is better than what is here.

        Raises:
            NoValidCheckpoint: nothing valid is here, and all in the archive is damaged.
            ArchiveSilent: nothing valid is here, and nobody knows whether the archive has more.
            Fenced: a later attempt has claimed the directory meanwhile.
        """
        if self._archive is None:
            return
        steps = await asyncio.to_thread(wanted, self._directory)
        if steps is None:
            return
        answer = await self._run("get", self._archive.url, str(epoch))
        await asyncio.to_thread(check_holding, self._directory, epoch)
        if answer.failure and steps.start:
            _log.warning("the archive is not asked for a newer checkpoint: %s", answer.failure)
        elif answer.failure:
            raise ArchiveSilent(self._archive.url, answer.failure)
        elif answer.damaged:
            raise NoValidCheckpoint(str(self._directory), answer.damaged)
        elif answer.step is not None:
            size_bytes, seconds = answer.bytes or 0, answer.seconds
            self._emit(CheckpointFetched(step=answer.step, size_bytes=size_bytes, seconds=seconds))

    async def end(self, outcome: Outcome, limit_s: float = END_LIMIT_S) -> None:
        """The attempt is over. When the run is too, its last checkpoint is copied, if time allows.

        What is half copied otherwise is nothing: the next attempt will have a newer one.
        """
        final = outcome in _FINAL
        if final and self._archive is not None and self._newest not in (None, self._tried):
            assert self._newest is not None
            self._copy(self._archive, self._newest)
        if final and self._task is not None:
            _, late = await asyncio.wait((self._task,), timeout=limit_s)
            if late and self._tried is not None:
                failure = f"the copy was not done after {limit_s:.0f} s, when the run had ended"
                self._emit(CheckpointArchived(step=self._tried, failure=failure))
        await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _copy(self, archive: ArchiveConfig, step: int) -> None:
        self._asked = step
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._copy_all(archive))

    async def _copy_all(self, archive: ArchiveConfig) -> None:
        while self._asked is not None:
            step, self._asked = self._asked, None
            self._tried = step
            answer = await self._run("put", archive.url, str(step), str(archive.last))
            if answer.failure:
                self._emit(CheckpointArchived(step=step, failure=answer.failure))
            elif answer.bytes:  # none: it was pruned meanwhile, or it is there already
                size_bytes, seconds = answer.bytes, answer.seconds
                self._emit(CheckpointArchived(step=step, size_bytes=size_bytes, seconds=seconds))

    async def _run(self, job: str, url: str, *rest: str) -> _Answer:
        """Cancelling ends the process."""
        try:
            env = await asyncio.to_thread(self._environment)
        except (OSError, ValueError) as error:
            return _Answer(failure=str(error))
        command = (sys.executable, "-P", "-m", "relight.storage.archiver", job, self._directory)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                url,
                *rest,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            return _Answer(failure=f"no process can be started to ask it: {error.strerror}")
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            return _parsed(json.loads(given(output) or ""))
        except ValueError:
            return _Answer(failure=f"the process that asks it ended with {process.returncode}")

    def _environment(self) -> dict[str, str]:
        """What ranks get, so that credentials are given once."""
        return os.environ | dict(self._env) | read_secrets(self._secret_files)


def _parsed(said: Mapping[str, object]) -> _Answer:
    damaged, step, size = said.get("damaged"), said.get("step"), said.get("bytes")
    return _Answer(
        failure=str(said.get("failure", "")),
        damaged=tuple(map(str, damaged)) if isinstance(damaged, list) else (),
        step=step if isinstance(step, int) else None,
        bytes=size if isinstance(size, int) else None,
        seconds=float(str(said.get("seconds", 0.0))),
    )
