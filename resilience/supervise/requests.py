"""What a user wants of an attempt that runs: small files in the run folder, each taken once.

``relight checkpoint`` and ``relight restart`` write ``requests/<what>.json``. The supervisor takes
the file away, acts, and leaves ``requests/<what>.answer.json`` with the same token. A request that
is written again before it was taken is still one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ..config import RunConfig
from ..decide.causes import StopCause
from ..decide.events import Event, NodesRejected
from ..decide.state import Phase
from ..run_folder import RunFolder
from .look import Look
from .marks import What as What
from .marks import request_path
from .own_saves import saved_files
from .ranks import Ranks
from .reasons_to_stop import stop_by_user
from .saves import Saves

_log: Final = logging.getLogger(__name__)
OWN_SAVE_LIMIT_S: Final = 900.0  # for a program that saves by itself
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A wish, under a token that its answer repeats. ``exclude`` are nodes to leave."""

    token: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of it: the ``step`` that will be saved, or why the request is ``refused``."""

    token: str
    step: int | None = None
    refused: str | None = None


def write_request(folder: RunFolder, what: What, exclude: tuple[str, ...] = ()) -> Request:
    """Leaves a request for the supervisor."""
    request = Request(token=secrets.token_hex(8), exclude=exclude)
    folder.requests.mkdir(mode=0o700, exist_ok=True)
    _write(request_path(folder, what), asdict(request))
    return request


def withdraw_request(folder: RunFolder, what: What, request: Request) -> None:
    """Takes a request back that nobody has taken; another one's stays."""
    path = request_path(folder, what)
    if _read(path).get("token") == request.token:
        path.unlink(missing_ok=True)


def read_answer(folder: RunFolder, what: What, request: Request) -> Answer | None:
    """The answer to this request; None while there is none."""
    content = _read(_answer_path(folder, what))
    if content.get("token") != request.token:
        return None
    step, refused = content.get("step"), content.get("refused")
    return Answer(
        token=request.token,
        step=step if isinstance(step, int) else None,
        refused=refused if isinstance(refused, str) else None,
    )


Serve = Callable[[Request], Coroutine[object, object, None]]


class Requests:
    """Takes requests when the attempt can do what they ask; until then they stay."""

    def __init__(
        self,
        config: RunConfig,
        ranks: Ranks,
        saves: Saves,
        emit: Callable[[Event], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._config = config
        self._script = config.program == "script"
        self._folder = RunFolder(config.run_dir)
        self._ranks = ranks
        self._saves = saves
        self._emit = emit
        self._spawn = spawn
        self._taking: set[What] = set()

    def look(self, phase: Phase, wanted: frozenset[What]) -> None:
        """Begin what is ``wanted`` and can be done now."""
        wanted -= self._taking
        if phase is Phase.RUNNING and "checkpoint" in wanted:
            if not self._saves.speaking and self._config.checkpoint.signal is not None:
                self._begin("checkpoint", self._save_itself)
            elif self._script:
                self._begin("checkpoint", self._refuse)
            elif self._saves.can_be_ordered:
                self._begin("checkpoint", self._save)
        if phase in (Phase.PREFLIGHT, Phase.RUNNING) and "restart" in wanted:
            self._begin("restart", self._restart)

    def _begin(self, what: What, serve: Serve) -> None:
        self._taking.add(what)
        self._spawn(self._serve(what, serve))

    async def _serve(self, what: What, serve: Serve) -> None:
        try:
            request = await asyncio.to_thread(self._take, what)
        except OSError as error:
            _log.warning("the request for a %s waits: %s", what, error)
            return
        finally:
            self._taking.discard(what)
        if request is not None:
            await serve(request)

    async def _refuse(self, request: Request) -> None:
        refused = "the script does not say how it is told to save: see checkpoint.signal"
        await self._answer("checkpoint", request, refused=refused)

    async def _save(self, request: Request) -> None:
        step = await self._saves.order_save(self._ranks.alive)
        refused = None if step is not None else "not all ranks answered; the run goes on"
        await self._answer("checkpoint", request, step=step, refused=refused)

    async def _save_itself(self, request: Request) -> None:
        """Tell the program, and wait for a file of its own where there is a pattern of them."""
        generation, give_up_at = self._ranks.generation, time.monotonic() + OWN_SAVE_LIMIT_S
        files = Look(partial(saved_files, self._config))
        before = await files.now(_LOOK_S)
        assert self._config.checkpoint.signal is not None
        self._ranks.signal(self._config.checkpoint.signal)
        while self._config.checkpoint.done is not None:
            await asyncio.sleep(_LOOK_S)
            now = await files.now(_LOOK_S)
            if before is None:
                before = now
            elif now is not None and now != before:
                break
            refused = self._why_over(generation, give_up_at)
            if refused is not None:
                await self._answer("checkpoint", request, refused=refused)
                return
        await self._answer("checkpoint", request)

    def _why_over(self, generation: int, give_up_at: float) -> str | None:
        if self._ranks.generation != generation:
            return "the ranks were started again before a file of checkpoint.done changed"
        if time.monotonic() > give_up_at:
            return f"no file of checkpoint.done has changed in {OWN_SAVE_LIMIT_S:.0f} s"
        return None

    async def _restart(self, request: Request) -> None:
        """Before ranks run, and for a script, which Slurm requeues, nodes are all there is."""
        reason = "relight restart was called"
        if request.exclude:
            self._emit(NodesRejected(bad=dict.fromkeys(request.exclude, reason)))
        if not self._script:
            can_save = bool(self._saves.speaking or self._config.checkpoint.signal)
            self._emit(stop_by_user(StopCause.SIGNALLED, reason, can_save=can_save))
        await self._answer("restart", request)

    def _take(self, what: What) -> Request | None:
        """None when it is not there any more, or none of ours."""
        path = request_path(self._folder, what)
        content = _read(path)
        path.unlink(missing_ok=True)
        if not content:
            return None
        exclude = content.get("exclude")
        nodes = exclude if isinstance(exclude, list) else []
        return Request(token=str(content.get("token")), exclude=tuple(map(str, nodes)))

    async def _answer(
        self, what: What, request: Request, *, step: int | None = None, refused: str | None = None
    ) -> None:
        answer = Answer(token=request.token, step=step, refused=refused)
        with contextlib.suppress(OSError):  # who asked gives up after a while
            await asyncio.to_thread(_write, _answer_path(self._folder, what), asdict(answer))


def _answer_path(folder: RunFolder, what: What) -> Path:
    return folder.requests / f"{what}.answer.json"


def _read(path: Path) -> Mapping[str, object]:
    """What a file holds; nothing when it is not there, or is none of ours."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: Mapping[str, object]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(content, file)
    part.replace(path)
