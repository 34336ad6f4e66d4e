"""A batch script in the place of ranks: what differs from a world of one rank.

It runs once, beside the supervisor, with the job's own environment and output files, and hears
every signal that Slurm sends to the batch script.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from ..config import RunConfig
from ..decide.causes import StopCause
from ..decide.events import Event, RankExited, RanksLingered
from ..environ import initial_environment
from ..messages import PASSED_ON, Message
from .cluster import Allocation, Command, StopNotice
from .own_saves import QUIET_S, OwnSave
from .reasons_to_stop import ReasonsToStop, stop_of

SIGNALS: Final = tuple(signal.Signals[name] for name in PASSED_ON)
_SENDING_S: Final = 0.3  # for Slurm to send a signal to every process of the job
_TURN_S: Final = 1.0


def agent_command(allocation: Allocation, port: int, env: Mapping[str, str]) -> Command:
    """The script's agent: a child of this process, not a step."""
    place = {
        "RELIGHT_CHANNEL": f"127.0.0.1:{port}",  # it is here, whatever this host is called
        "RELIGHT_TASK": "0",
        "RELIGHT_LOCAL_TASK": "0",
        "RELIGHT_NODE": allocation.batch_node,
    }
    argv = (sys.executable, "-P", "-m", "relight.resilience.worker.agent")
    return Command(argv, {**initial_environment(), **env, **place})


def start_order(config: RunConfig, argv: tuple[str, ...], attempt: str, generation: int) -> Message:
    """The order that starts the script. Nothing of relight's world gets into its environment."""
    return {
        "type": "start",
        "generation": generation,
        "argv": list(argv),
        "cwd": str(config.working_dir),
        "env": {**config.env, "RELIGHT_RUN_ID": config.run_id, "RELIGHT_ATTEMPT": attempt},
        "without_env": list(config.without_env),
        "secret_files": dict(config.secret_files),
        "log": None,
        "warm": False,
    }


class Program(Protocol):
    """What runs in the place of ranks."""

    generation: int

    @property
    def alive(self) -> Collection[int]: ...

    def signal(self, name: str, *, unless_heard: bool = False) -> None: ...


class Script:
    """The script's signals and its end.

    Signals are passed on, each exactly once. With proctrack/linuxproc Slurm itself signals every
    process of the job; with proctrack/cgroup, or for a signal to the batch script only, it signals
    the supervisor alone. The agent is to Slurm what the script is: a signal that it has heard, the
    script has heard, too. It is the agent that knows, however late either of us gets its turn.
    """

    def __init__(
        self,
        config: RunConfig,
        reasons: ReasonsToStop,
        program: Program,
        report: Callable[[Event], None],
    ) -> None:
        self._config = config
        self._save_signal = config.checkpoint.signal
        self._reasons = reasons
        self._program = program
        self._report = report
        self._ended: int | None = None  # which of its generations has
        self._saves: dict[str, asyncio.Task[OwnSave]] = {}  # since a signal came

    async def warned(self, notice: StopNotice, name: str) -> None:
        """The job will end: let the script save, unless it has just heard that very signal.

        One whose markers say that it has saved is ended: what it does until the job ends is lost.
        """
        if notice.cause is StopCause.PREEMPTED and not self._begun:
            self._report(stop_of(notice, name))  # it would be told before it can listen
            return
        save = await (self._saves.pop(name, None) or self._begin_save())
        if self._save_signal is not None and self._save_signal != name:
            self._program.signal(self._save_signal)
        while save.has_markers and (notice.kill_at is None or time.time() < notice.kill_at):
            await asyncio.sleep(_TURN_S)
            if await save.is_done(_TURN_S):
                if not await self._reasons.still_warns():
                    return
                detail = f"it has saved, and no marker has changed for {QUIET_S:.0f} s"
                self._report(stop_of(notice, "the script has saved"))
                lingers = RanksLingered(
                    generation=self._program.generation, ranks=(0,), detail=detail
                )
                self._report(lingers)
                return

    @property
    def _begun(self) -> bool:
        return bool(self._program.alive) or self._ended == self._program.generation

    async def _begin_save(self) -> OwnSave:
        save = OwnSave(self._config)
        if save.has_markers:
            await save.begin(_TURN_S)
        return save

    async def pass_on(self, name: str) -> None:
        """Act in Slurm's place, unless it has sent it to the script, too."""
        # The script may have it, and save before it is known what it means.
        self._saves[name] = asyncio.create_task(self._begin_save())
        await asyncio.sleep(_SENDING_S)
        self._program.signal(name, unless_heard=True)

    async def ended(self, event: RankExited) -> None:
        """Whether it has done its work, or ended since the job has to, is for Slurm to say."""
        self._ended = event.generation
        if not event.stopped:
            await self._reasons.ask_after_end()
        self._report(event)
