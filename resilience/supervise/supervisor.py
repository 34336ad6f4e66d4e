"""The loop inside the batch script: event → journal → decision → journal → execution.

One supervisor per attempt. It decides nothing itself (``decide.machine`` does), it carries out. It
starts without torch, h5py or numpy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from relight.storage.errors import NoValidCheckpoint
from relight.storage.set_aside import set_aside

from ..config import RunConfig
from ..decide.actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    ProbeNodes,
    RequestAllocation,
    RunPreflight,
    SaveAndStop,
    SetCheckpointAside,
    StartRanks,
    StopRanks,
    Withdraw,
)
from ..decide.cadence import cadence
from ..decide.codec import to_json
from ..decide.events import (
    AllocationArranged,
    AllocationRefused,
    AttemptStarted,
    CheckpointRefused,
    Event,
    RanksHung,
    RanksStopped,
    RestoreImpossible,
    SaveFailed,
    StartFailed,
)
from ..decide.machine import step
from ..decide.policy import Policy
from ..decide.replay import replay
from ..decide.rules import Rule
from ..decide.state import Phase, State
from ..health.exclusion import record_exclusion
from ..messages import Message, number
from ..run_folder import RunFolder
from .cluster import Allocation, Cluster, ClusterUnavailable, Restart, RestartRefused
from .journal import JournalWriter, Kind, read_journals
from .nodes import probe, run_preflight
from .pace import Pace
from .ranks import Ranks
from .reasons_to_stop import ReasonsToStop, cancelled
from .rules_file import run_rules
from .save_and_stop import save_and_stop
from .saves import Saves
from .standing import Standing, read_verdict, write_progress, write_verdict

_log: Final = logging.getLogger(__name__)
_TICK_S: Final = 1.0


def policy_of(config: RunConfig, rules: tuple[Rule, ...]) -> Policy:
    """The machine's limits, from the run's configuration."""
    return Policy(
        nodes=config.nodes,
        tasks_per_node=config.tasks_per_node,
        preflight=config.health.preflight,
        restart=config.restart.mode,
        failures=config.restart.failures,
        no_progress=config.restart.no_progress,
        walltime_s=config.restart.walltime_s,
        rules=rules,
    )


def supervise(config: RunConfig, cluster: Cluster, *, life: int = 1) -> int:
    """Run one attempt to its end; the exit code of the batch script.

    ``life`` counts the supervisors of this attempt: one after the first goes on from the journal of
    the one before, which must have ended.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s relight: %(message)s",
        datefmt="%H:%M:%S",
    )
    ended = read_verdict(RunFolder(config.run_dir))
    if ended is not None:
        _log.info("the run has ended before (%s): nothing to do", ended.state)
        return ended.exit_code
    return asyncio.run(Supervisor(config, cluster, life).run())


class Supervisor:
    """One attempt of a run."""

    def __init__(self, config: RunConfig, cluster: Cluster, life: int) -> None:
        self._config = config
        self._cluster = cluster
        self._folder = RunFolder(config.run_dir)
        self._policy = policy_of(config, run_rules(self._folder))
        self._allocation: Allocation = cluster.allocation()
        records = read_journals(self._folder.journals)
        self._state: State = replay(
            ((r.time, r.name, r.data) for r in records if r.kind == "event"), self._policy
        )
        self._journal = JournalWriter(
            self._folder.journal(self._allocation.attempt), go_on=life > 1
        )
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._start: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._saves = Saves(config, self._emit, lambda body: self._ranks.tell_programs(body))
        self._ranks = Ranks(
            config,
            cluster,
            self._allocation,
            self._emit,
            self._on_word,
            lambda name: self._on_signal(name, to_supervisor=False),
        )
        self._reasons = ReasonsToStop(config, cluster, self._emit)
        self._pace = Pace(config.restart, config.world_size)

    async def run(self) -> int:
        """Serve events until the machine says finish."""
        loop = asyncio.get_running_loop()
        for number_ in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            heard = partial(self._on_signal, number_.name, to_supervisor=True)
            loop.add_signal_handler(number_, heard)
        loop.add_signal_handler(signal.SIGCONT, lambda: None)  # comes before a TERM
        await self._ranks.open()
        self._spawn(self._tick())
        self._emit(await asyncio.to_thread(self._attempt_started))
        try:
            while True:
                finish = await self._handle(await self._next_event())
                if finish is not None:
                    return finish.exit_code
        finally:
            await self._clean_up()

    async def _next_event(self) -> Event:
        while True:
            if self._broken is not None:
                raise self._broken
            try:
                return await asyncio.wait_for(self._events.get(), _TICK_S)
            except TimeoutError:
                continue

    async def _handle(self, event: Event) -> Finish | None:
        now = time.time()
        self._note("event", event, now)
        self._state, actions = step(self._state, event, self._policy, now)
        for action in actions:
            self._note("action", action, now)
            if isinstance(action, Finish):
                await self._finish(action)
                return action
            self._execute(action)
        self._show()
        return None

    async def _clean_up(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ranks.close()
        self._journal.close()

    def _emit(self, event: Event) -> None:
        if isinstance(event, RanksStopped):
            # What was saved last may be on its way to a commit, and the answer to why we stop on
            # its way from the scheduler: the decision that follows needs both.
            self._spawn(self._when_settled(event))
        else:
            self._events.put_nowait(event)

    async def _when_settled(self, event: Event) -> None:
        await self._saves.settle()
        await self._reasons.settled()
        self._events.put_nowait(event)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()

    def _note(self, kind: Kind, subject: Event | Action, now: float) -> None:
        data, name = to_json(subject), type(subject).__name__
        self._journal.write(now, kind, name, data)
        _log.info("%s %s", name, _shown(data))

    # The attempt's begin and end

    def _attempt_started(self) -> AttemptStarted:
        lost = None
        previous = self._state.batch_node
        if self._state.phase not in (Phase.NEW, Phase.ENDED) and previous:
            condition = self._cluster.node_conditions((previous,)).get(previous)
            lost = previous if condition == "down" else None
        return AttemptStarted(
            attempt=self._allocation.attempt,
            job_id=self._allocation.job_id,
            restart_count=self._allocation.restart_count,
            nodes=self._allocation.nodes,
            batch_node=self._allocation.batch_node,
            end_time=self._reasons.read_end_time(),
            lost_batch_node=lost,
        )

    async def _finish(self, order: Finish) -> None:
        await self._saves.settle()
        while not self._events.empty():
            event, now = self._events.get_nowait(), time.time()
            self._note("event", event, now)
            self._state, _ = step(self._state, event, self._policy, now)
        if order.outcome not in (Outcome.RESTARTING, Outcome.INTERRUPTED):
            write_verdict(self._folder, order, time.time())
        self._show()

    # Orders

    def _execute(self, action: Action) -> None:
        match action:
            case RunPreflight():
                self._spawn(self._preflight(action))
            case StartRanks():
                self._start = self._spawn(self._start_ranks(action))
            case StopRanks():
                if self._start is not None:
                    self._start.cancel()
                self._spawn(self._ranks.stop(stacks=action.stacks))
            case SaveAndStop():
                self._spawn(save_and_stop(action, self._ranks, self._saves, self._emit))
            case ProbeNodes():
                self._spawn(self._probe(action))
            case SetCheckpointAside():
                set_aside(self._config.checkpoint.directory, action.step, action.reason)
            case RequestAllocation():
                self._spawn(self._request_allocation(action))
            case Withdraw():
                self._withdraw(action)
            case ExcludeNode():
                # Not a task: those are cancelled at the end, and this must be written.
                note = partial(record_exclusion, self._config, self._allocation.attempt)
                asyncio.get_running_loop().run_in_executor(None, note, action, time.time())
            case Finish():
                pass  # what it says is in the state and in the journal

    async def _preflight(self, order: RunPreflight) -> None:
        # A node that cannot see what was made here does not have the file system.
        with contextlib.suppress(OSError):  # the preflight finds and names the fault
            self._config.checkpoint.directory.mkdir(parents=True, exist_ok=True)
        self._events.put_nowait(
            await run_preflight(self._config, self._cluster, self._allocation, order.nodes)
        )

    async def _start_ranks(self, order: StartRanks) -> None:
        await asyncio.sleep(order.delay_s)
        try:
            restore = await self._saves.begin(self._allocation.attempt, order.generation)
        except NoValidCheckpoint as error:
            self._emit(RestoreImpossible(reason=str(error)))
            return
        except OSError as error:
            detail = f"the checkpoint directory does not work: {error}"
            self._ranks.generation = order.generation
            self._emit(StartFailed(generation=order.generation, missing=(), detail=detail))
            return
        self._pace.begin(time.monotonic())
        await self._ranks.start(order, restore.manifest, restore.step)

    async def _probe(self, order: ProbeNodes) -> None:
        self._events.put_nowait(await probe(self._cluster, order.nodes))

    async def _request_allocation(self, order: RequestAllocation) -> None:
        # A cancel that came in between is final: nothing is sent.
        if self._folder.cancelled.exists():
            self._emit(cancelled(time.time()))
            self._emit(AllocationRefused(reason="the run was cancelled"))
            return
        try:
            restart = await asyncio.to_thread(
                self._cluster.new_allocation, order.exclude, self._config.restart.mode
            )
        except (RestartRefused, ClusterUnavailable) as error:
            self._emit(AllocationRefused(reason=str(error)))
            return
        if self._folder.cancelled.exists():
            self._emit(cancelled(time.time()))
        self._emit(AllocationArranged(mode=restart.mode, job_id=restart.job_id))

    def _withdraw(self, order: Withdraw) -> None:
        self._cluster.withdraw(Restart(order.mode, order.job_id))

    # Ranks' words

    def _on_word(self, rank: int, body: Message) -> None:
        self._pace.on_word(rank, body, time.monotonic())
        match body["type"]:
            case "joined":
                self._saves.joined(rank)
            case "restored":
                self._saves.restored(rank, number(body, "step"))
            case "beat" | "finished":
                self._saves.steps[rank] = number(body, "step")
            case "held":
                self._saves.held(rank, body)
            case "saved":
                self._saves.saved(body)
            case "save_failed":
                self._saves.failed()
                self._emit(SaveFailed(step=number(body, "step"), reason=str(body.get("reason"))))
            case "restore_failed":
                self._emit(
                    CheckpointRefused(step=number(body, "step"), reason=str(body.get("reason")))
                )
            case "signalled":
                self._on_signal(str(body.get("signal")), to_supervisor=False)

    def _on_signal(self, name: str, *, to_supervisor: bool) -> None:
        self._spawn(self._reasons.ask(name, to_supervisor=to_supervisor))

    async def _tick(self) -> None:
        """What happens because time passes."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._ranks.look_for_silence()
            self._look_for_hangs()
            auto_s = cadence(self._state.past, self._config.nodes).interval_s
            if self._state.phase is Phase.RUNNING and self._saves.due(auto_s):
                self._spawn(self._saves.order_save(self._ranks.alive))
            await self._reasons.look(self._state.stop)
            self._show()

    def _look_for_hangs(self) -> None:
        hang = self._pace.hang(time.monotonic())
        if hang is not None and self._state.phase is Phase.RUNNING:
            self._pace.begin(time.monotonic())  # said once
            self._emit(
                RanksHung(
                    generation=self._state.generation,
                    ranks=hang.ranks,
                    nodes=self._ranks.nodes_of(hang.ranks),
                    detail=hang.detail,
                )
            )

    def _show(self) -> None:
        standing = Standing(
            attempt=self._allocation.attempt,
            job_id=self._allocation.job_id,
            generation=self._state.generation,
            phase=self._state.phase.value,
            step=min(self._saves.steps.values(), default=None),
            nodes=self._state.active or self._state.nodes,
            excluded=tuple(asdict(exclusion) for exclusion in self._state.excluded),
            last_checkpoint=self._state.committed_step if self._state.committed_step >= 0 else None,
        )
        write_progress(self._folder, standing, time.time())


def _shown(data: Mapping[str, object]) -> str:
    """The fields that hold something, without the ranks' own words."""
    return ", ".join(
        f"{key}={value}"
        for key, value in data.items()
        if value not in ((), None, {}, "") and key != "tail"
    )
