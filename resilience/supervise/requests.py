"""What a user wants of an attempt that runs: small files in the run folder, each taken once.

``relight checkpoint`` and ``relight restart`` write ``requests/<what>.json``. The supervisor takes
the file away, acts, and leaves ``requests/<what>.answer.json`` with the same token. A request that
is written again before it was taken is still one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from ..config import RunConfig
from ..decide.causes import StopCause
from ..decide.events import Event, NodesRejected
from ..decide.state import Phase
from ..run_folder import RunFolder
from .own_saves import saved_files
from .ranks import Ranks
from .reasons_to_stop import stop_by_user
from .saves import Saves

_LOOK_S: Final = 0.5
What = Literal["checkpoint", "restart"]


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
    _write(_request_path(folder, what), asdict(request))
    return request


def withdraw_request(folder: RunFolder, what: What, request: Request) -> None:
    """Takes a request back that nobody has taken; another one's stays."""
    path = _request_path(folder, what)
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

    def look(self, phase: Phase) -> None:
        """Look once."""
        if not self._folder.requests.is_dir():
            return
        if phase is Phase.RUNNING and self._wanted("checkpoint"):
            if not self._saves.speaking and self._config.checkpoint.signal is not None:
                self._spawn(self._save_itself(self._take("checkpoint")))
            elif self._script:
                refused = "the script does not say how it is told to save: see checkpoint.signal"
                self._answer("checkpoint", self._take("checkpoint"), refused=refused)
            elif self._saves.can_be_ordered:
                self._spawn(self._save(self._take("checkpoint")))
        if phase in (Phase.PREFLIGHT, Phase.RUNNING) and self._wanted("restart"):
            self._restart(self._take("restart"))

    async def _save(self, request: Request) -> None:
        step = await self._saves.order_save(self._ranks.alive)
        refused = None if step is not None else "not all ranks answered; the run goes on"
        self._answer("checkpoint", request, step=step, refused=refused)

    async def _save_itself(self, request: Request) -> None:
        """Tell the program, and wait for a file of its own where there is a pattern of them."""
        before = saved_files(self._config)
        signal_ = {"type": "signal", "signal": self._config.checkpoint.signal}
        self._ranks.tell(signal_)
        while self._config.checkpoint.done is not None and saved_files(self._config) == before:
            await asyncio.sleep(_LOOK_S)
        self._answer("checkpoint", request)

    def _restart(self, request: Request) -> None:
        """Before ranks run, and for a script, which Slurm requeues, nodes are all there is."""
        reason = "relight restart was called"
        if request.exclude:
            self._emit(NodesRejected(bad=dict.fromkeys(request.exclude, reason)))
        if not self._script:
            can_save = bool(self._saves.speaking or self._config.checkpoint.signal)
            self._emit(stop_by_user(StopCause.SIGNALLED, reason, can_save=can_save))
        self._answer("restart", request)

    def _wanted(self, what: What) -> bool:
        return _request_path(self._folder, what).exists()

    def _take(self, what: What) -> Request:
        path = _request_path(self._folder, what)
        content = _read(path)
        path.unlink(missing_ok=True)
        exclude = content.get("exclude")
        nodes = exclude if isinstance(exclude, list) else []
        return Request(token=str(content.get("token")), exclude=tuple(map(str, nodes)))

    def _answer(
        self, what: What, request: Request, *, step: int | None = None, refused: str | None = None
    ) -> None:
        answer = Answer(token=request.token, step=step, refused=refused)
        with contextlib.suppress(OSError):  # who asked gives up after a while
            _write(_answer_path(self._folder, what), asdict(answer))


def _request_path(folder: RunFolder, what: What) -> Path:
    return folder.requests / f"{what}.json"


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
