"""How each order of the machine is carried out: one method per kind, most of them a task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Final

from relight.storage.condition import steps
from relight.storage.errors import ArchiveSilent, Fenced, FormatUnknown, NoValidCheckpoint
from relight.storage.layout import Incarnation
from relight.storage.set_aside import set_aside

from ..config import RunConfig
from ..decide.actions import (
    Action,
    AwaitStorage,
    ExcludeNode,
    Finish,
    ProbeNodes,
    RequestAllocation,
    RollBack,
    RunPreflight,
    SaveAndStop,
    SetCheckpointAside,
    StartAnyway,
    StartRanks,
    StopRanks,
    Withdraw,
)
from ..decide.events import (
    AllocationArranged,
    AllocationRefused,
    Event,
    ExclusionForgotten,
    ProbeUnanswered,
    RestoreImpossible,
    StartFailed,
)
from ..decide.storage_events import StorageAnswered, StorageSilent
from ..health.exclusion import record_exclusion
from ..run_folder import RunFolder
from . import storage_probe
from .cluster import Allocation, Cluster, ClusterUnavailable, Restart, RestartRefused
from .commits import superseded
from .marks import look_for_cancel
from .nodes import probe, put_to_work, run_preflight
from .pace import Pace
from .ranks import Ranks
from .reasons_to_stop import cancelled
from .save_and_stop import save_and_stop
from .saves import Saves

_log: Final = logging.getLogger(__name__)

_AT_ONCE_S: Final = 1.0  # a node that lives starts a command in less
_STORAGE_PAUSE_S: Final = 5.0
_SILENCE_LIMIT_S: Final = 600.0  # of the scheduler, at least
_SILENCE_PAUSE_S: Final = 3.0


class Orders:
    """Carries orders out; what comes of them is reported by ``emit``."""

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        ranks: Ranks,
        saves: Saves,
        pace: Pace,
        emit: Callable[[Event], None],
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
        kill_at: Callable[[], float | None],
        look_for_stop: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._allocation = allocation
        self._folder = RunFolder(config.run_dir)
        self._ranks = ranks
        self._saves = saves
        self._pace = pace
        self._emit = emit
        self._spawn = spawn
        self._kill_at = kill_at
        self._look_for_stop = look_for_stop
        self._start: asyncio.Task[None] | None = None
        self._request: asyncio.Task[None] | None = None  # the last one for an allocation
        self._ending = False
        self._set_asides: set[asyncio.Task[None]] = set()
        self.start_awaits: str | None = None  # what a start waits for, but agents, for people

    def carry_out(self, action: Action) -> None:
        match action:
            case RunPreflight():
                self._spawn(self._preflight(action))
            case StartRanks():
                self._ranks.expect(action.generation)  # at once: a stop may meet the pause before
                self._start = self._spawn(self._start_ranks(action))
            case StartAnyway():
                self._ranks.start_anyway()
            case StopRanks():
                if self._start is not None:
                    self._start.cancel()
                self._spawn(self._ranks.stop(action, self._ranks.generation))
            case SaveAndStop():
                self._spawn(
                    save_and_stop(
                        self._config,
                        action,
                        self._kill_at,
                        self._ranks,
                        self._saves,
                        self._pace,
                        self._emit,
                    )
                )
            case ProbeNodes():
                self._spawn(self._probe(action))
            case AwaitStorage():
                self._spawn(self._await_storage(action))
            case SetCheckpointAside():
                self._before_a_start(self._set_aside((action.step,), action.reason))
            case RollBack():
                self._before_a_start(self._roll_back(action))
            case RequestAllocation():
                self._request = self._spawn(self._request_allocation(action))
            case Withdraw():
                self._spawn(self._withdraw(action))
            case ExcludeNode():
                # Not a task: those are cancelled at the end, and this must be written.
                loop = asyncio.get_running_loop()
                loop.run_in_executor(None, self._remember, loop, action, time.time())
            case Finish():
                pass  # what it says is in the state and in the journal

    def _remember(self, loop: asyncio.AbstractEventLoop, order: ExcludeNode, now: float) -> None:
        why = record_exclusion(self._config, self._allocation.attempt, order, now)
        if why is not None:
            told = ExclusionForgotten(node=order.node, reason=why)
            with contextlib.suppress(RuntimeError):  # the loop has ended: the log tells
                loop.call_soon_threadsafe(self._emit, told)

    async def _preflight(self, order: RunPreflight) -> None:
        done = await run_preflight(self._config, self._cluster, self._allocation, order.nodes)
        await self._look_for_stop()  # before nodes are judged by a check that the end has killed
        self._emit(done)

    async def _start_ranks(self, order: StartRanks) -> None:
        self.start_awaits = f"the end of a pause of {order.delay_s:.0f} s"
        await asyncio.sleep(order.delay_s)
        self.start_awaits = "the checkpoint directory"
        self._spawn(self._look_for_stop())
        if self._set_asides:  # or the damaged one would be chosen again
            await asyncio.wait(self._set_asides)
        try:
            begins = self._saves.begin(
                Incarnation(self._allocation.attempt, order.generation),
                world_size=self._config.ranks_on(len(order.nodes)),
                committed_step=order.committed_step,
            )
            restore = await storage_probe.while_it_answers(
                begins, self._config.checkpoint.directory
            )
        except (NoValidCheckpoint, FormatUnknown) as error:
            self._emit(RestoreImpossible(reason=str(error)))
            return
        except ArchiveSilent as error:
            self._emit(StartFailed(generation=order.generation, missing=(), detail=str(error)))
            return
        except Fenced as error:
            self._emit(superseded(error, self._config.run_id))
            return
        except OSError as error:
            self._emit(
                StartFailed(
                    generation=order.generation,
                    missing=(),
                    detail=f"the checkpoint directory does not work: {error}",
                    errno=error.errno,
                )
            )
            return
        self.start_awaits = None
        self._pace.begin(time.monotonic(), self._config.ranks_on(len(order.nodes)))
        try:
            await self._ranks.start(order, restore.manifest, restore.step)
        except OSError as error:
            self._emit(
                StartFailed(
                    generation=order.generation,
                    missing=(),
                    detail=f"the ranks cannot be started: {error}",
                    errno=error.errno,
                )
            )

    async def _await_storage(self, order: AwaitStorage) -> None:
        begun = time.monotonic()
        logs = self._folder.attempt(self._allocation.attempt)
        question = storage_probe.Question(self._config.checkpoint.directory, logs)
        while True:
            fault = await question.ask()
            waited_s = time.monotonic() - begun
            if fault is None:
                self._emit(StorageAnswered(waited_s=waited_s))
                return
            if waited_s > order.limit_s:
                self._emit(StorageSilent(waited_s=waited_s, detail=fault))
                return
            _log.warning("waiting for the file system: %s", fault)
            await asyncio.sleep(_STORAGE_PAUSE_S)

    async def _probe(self, order: ProbeNodes) -> None:
        if order.work:
            tested = put_to_work(self._config, self._cluster, self._allocation, order.nodes)
            self._emit(await tested)
            return
        unheard = dict.fromkeys(order.nodes)

        def tell() -> None:
            if unheard:
                self._emit(ProbeUnanswered(nodes=tuple(unheard), waited_s=_AT_ONCE_S))

        def heard(node: str) -> None:
            unheard.pop(node, None)

        late = asyncio.get_running_loop().call_later(_AT_ONCE_S, tell)
        job = self._allocation
        try:
            self._emit(
                await probe(self._cluster, order.nodes, job.batch_node, len(job.nodes), heard)
            )
        finally:
            late.cancel()

    def _before_a_start(self, work: Coroutine[object, object, None]) -> None:
        task = self._spawn(work)
        self._set_asides.add(task)
        task.add_done_callback(self._set_asides.discard)

    async def _roll_back(self, order: RollBack) -> None:
        try:
            found = await asyncio.to_thread(steps, self._config.checkpoint.directory)
        except OSError as error:
            _log.warning("no checkpoint is set aside: %s", error)
            return
        gone = [step for step in found if step >= order.step]
        await self._set_aside(gone, order.reason, spoilt=True)
        await self._saves.archiving.drop(order.step)

    async def _set_aside(self, which: Iterable[int], reason: str, *, spoilt: bool = False) -> None:
        directory = self._config.checkpoint.directory
        for step in which:
            try:
                await asyncio.to_thread(set_aside, directory, step, reason, spoilt=spoilt)
            except OSError as error:
                _log.warning("checkpoint %d is not set aside: %s", step, error)

    async def _request_allocation(self, order: RequestAllocation) -> None:
        # A cancel that came in between is final: nothing is sent.
        if await self._look_for_cancel():
            self._emit(AllocationRefused(reason="the run was cancelled"))
            return
        answer = await self._ask_for_allocation(order)
        await self._look_for_cancel()
        self._emit(answer)

    async def answered(self) -> None:
        """The run has ended: wait for what is under way, ask for no allocation any more."""
        self._ending = True
        if self._set_asides:
            await asyncio.wait(self._set_asides)
        if self._request is not None:
            await asyncio.wait((self._request,))

    async def _look_for_cancel(self) -> bool:
        mark = await look_for_cancel(self._folder)
        if mark is not None:
            self._emit(cancelled(mark, time.time()))
        return mark is not None

    async def _ask_for_allocation(
        self, order: RequestAllocation
    ) -> AllocationArranged | AllocationRefused:
        """Ask for as long as there is time: a scheduler that is silent has not said no."""
        # Who is to be killed then is not while nobody answers, and there is nothing else to do.
        give_up_at = max(self._kill_at() or 0.0, time.time() + _SILENCE_LIMIT_S)
        while True:
            try:
                restart = await asyncio.to_thread(
                    self._cluster.new_allocation,
                    order.exclude,
                    "successor" if order.early else self._config.restart.mode,
                )
            except RestartRefused as error:
                return AllocationRefused(reason=str(error))
            except ClusterUnavailable as error:
                over = self._ending or time.time() > give_up_at
                if over or await look_for_cancel(self._folder) is not None:
                    return AllocationRefused(reason=str(error), transient=True)
                _log.warning("asking again for a new allocation: %s", error)
            else:
                return AllocationArranged(
                    mode=restart.mode, job_id=restart.job_id, released=restart.released
                )
            await asyncio.sleep(_SILENCE_PAUSE_S)
            if self._ending:
                return AllocationRefused(reason="the run has ended", transient=True)

    async def _withdraw(self, order: Withdraw) -> None:
        try:
            await asyncio.to_thread(self._cluster.withdraw, Restart(order.mode, order.job_id))
        except ClusterUnavailable as error:
            # The mark of the cancel stands: a job that starts all the same ends at once.
            _log.warning("job %s is not withdrawn: %s", order.job_id, error)
