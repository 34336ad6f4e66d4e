"""The loop inside the batch script: event → journal → decision → journal → execution.

One supervisor per attempt. It decides nothing itself (``decide.machine`` does), it carries out. It
starts without torch, h5py or numpy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Coroutine
from dataclasses import asdict
from functools import partial
from typing import Final, TypeVar

from ..config import RunConfig
from ..decide.actions import Finish, Outcome
from ..decide.cadence import cadence
from ..decide.events import (
    AttemptStarted,
    CheckpointCommitted,
    Event,
    RankExited,
    RanksStarted,
    RanksStopped,
    RanksStraggled,
)
from ..decide.probing import gone
from ..decide.replay import replay
from ..decide.state import Phase, State
from ..run_folder import RunFolder
from . import ear
from .begin import allow_many_connections, decided_before, open_log, policy_of
from .cluster import Allocation, Cluster
from .deadline import Deadline
from .decisions import Decisions
from .drill import Drill
from .journal import JournalWriter, read_journals
from .last_word import give_room, keep_room, leave_verdict
from .look import Look
from .lookout import Lookout
from .marks import Marks, read_marks
from .notify import notify
from .orders import Orders
from .pace import Pace
from .ranks import Ranks
from .rate import Rate
from .reasons_to_stop import ReasonsToStop
from .refusals import Refusals
from .requests import Requests
from .room import once_there_is_room
from .rules_file import run_rules
from .saves import Saves
from .script import SIGNALS, Script
from .standing import Progress, Standing, read_verdict
from .threads import Threads
from .tier_leftovers import remove_leftovers
from .transfers import Transfers
from .waits import Waited, Waits
from .watch import Watch
from .words import Words

_log: Final = logging.getLogger(__name__)
Result = TypeVar("Result")
_TICK_S: Final = 1.0
_PAUSED_S: Final = 5.0  # a turn of the loop that takes longer was a pause of this process
_HEARD: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def supervise(config: RunConfig, cluster: Cluster, *, life: int = 1) -> int:
    """Run one attempt to its end; the exit code of the batch script.

    ``life`` counts the supervisors of this attempt: one after the first goes on from the journal of
    the one before, which must have ended.
    """
    open_log(config, cluster.allocation())
    ended = read_verdict(RunFolder(config.run_dir))
    if ended is not None:
        _log.info("the run has ended before (%s): nothing to do", ended.state)
        return ended.exit_code
    decided = decided_before(config, cluster)
    if decided is not None:
        _log.info("the last life of this supervisor had come to its end: %s", decided)
        leave_verdict(RunFolder(config.run_dir), decided)
        return decided.exit_code
    keep_room(RunFolder(config.run_dir))
    if life == 1:  # whoever let this job start has the last word
        RunFolder(config.run_dir).held.unlink(missing_ok=True)
    if config.program == "ranks":  # a script has one agent, and finds the limits as they were
        allow_many_connections()
    return asyncio.run(Supervisor(config, cluster, life).run())


class Supervisor:
    """One attempt of a run."""

    def __init__(self, config: RunConfig, cluster: Cluster, life: int) -> None:
        self._config = config
        self._cluster = cluster
        self._life = life
        self._folder = RunFolder(config.run_dir)
        policy = policy_of(config, once_there_is_room(partial(run_rules, self._folder)))
        self._allocation: Allocation = cluster.allocation()
        records = read_journals(self._folder.journals)
        state = replay(((r.time, r.name, r.data) for r in records if r.kind == "event"), policy)
        path = self._folder.journal(self._allocation.attempt)
        journal = once_there_is_room(partial(JournalWriter, path, go_on=life > 1))
        self._decisions = Decisions(state, policy, journal, partial(give_room, self._folder))
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[object]] = set()
        self._broken: BaseException | None = None
        self._drill = Drill(config.checkpoint.directory, config.checkpoint.drill, self._emit)
        self._saves = Saves(config, self._emit, lambda body: self._ranks.tell_programs(body))
        self._ranks = Ranks(
            config,
            cluster,
            self._allocation,
            self._emit,
            lambda rank, body: self._words.hear(rank, body),
            self._on_agents_signal,
            self._saves.partners,
            lambda: tuple(n for n in self._state.healthy if n not in gone(self._state)),
        )
        self._ranks.started_before = any(r.name == "RanksStarted" for r in records)
        self._refusals = Refusals(
            config.checkpoint.directory, self._emit, lambda: self._ranks.generation
        )
        self._pace = Pace(config.restart)
        self._lookout = Lookout(config, self._pace, self._ranks, self._emit)
        self._transfers, self._waits = Transfers(), Waits()
        self._words = Words(
            self._ranks,
            self._saves,
            self._lookout,
            self._transfers,
            self._refusals,
            self._emit,
            self._spawn,
            self._on_agents_signal,
        )
        self._reasons = ReasonsToStop(
            config,
            cluster,
            self._emit,
            lambda: bool(self._saves.speaking),
            self._time_needed_s,
            lambda notice, name: self._spawn(self._script.warned(notice, name)),
        )
        self._orders = Orders(
            config,
            cluster,
            self._allocation,
            self._ranks,
            self._saves,
            self._pace,
            self._emit,
            self._spawn,
            self._kill_at,
            self._reasons.look_before_start,
        )
        self._marks = Look(partial(read_marks, self._folder))
        progress = Progress(self._folder)
        self._progress = Look(lambda: progress.write(self._standing, time.time()))
        self._requests = Requests(config, self._ranks, self._saves, self._emit, self._spawn)
        self._rate = Rate()
        self._watch = Watch(
            config,
            cluster,
            self._allocation,
            self._events.put_nowait,
            lambda: self._state.healthy,
            lambda: self._state.generation,
            self._can_save,
        )
        self._script = Script(config, self._reasons, self._ranks, self._events.put_nowait)
        self._is_script = config.program == "script"

    async def run(self) -> int:
        """Serve events until the machine says finish."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Threads())
        loop.add_signal_handler(signal.SIGCONT, lambda: None)  # comes before a TERM
        for number_ in SIGNALS if self._is_script else _HEARD:
            loop.add_signal_handler(number_, self._on_signal, number_.name)
        self._spawn(self._tick())
        self._spawn(self._watch.run())
        self._emit(await asyncio.to_thread(self._attempt_started))
        if self._is_script and self._config.checkpoint.signal is not None:
            log = self._folder.attempt(self._allocation.attempt) / "ear.log"
            self._spawn(ear.listen(self._cluster, self._allocation, log, self._ask_why))
        # The keeper blocks them until somebody listens: a reason to stop is heard from here on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        try:
            while True:
                finish = await self._handle(await self._next_events())
                if finish is not None:
                    return finish.exit_code
        finally:
            await self._clean_up()

    async def _next_events(self) -> list[Event]:
        """All that has happened since the last time: something, or the journal waits for room."""
        while self._events.empty():
            if self._broken is not None:
                raise self._broken
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    return [await self._events.get(), *self._waiting()]
            if self._decisions.unwritten:
                break
        return self._waiting()

    def _waiting(self) -> list[Event]:
        return [self._events.get_nowait() for _ in range(self._events.qsize())]

    @property
    def _state(self) -> State:
        return self._decisions.state

    async def _handle(self, events: list[Event]) -> Finish | None:
        """Decide on all events, then carry the orders out; what ends the attempt comes last."""
        finish = None
        for order in await self._decisions.on(events):
            if isinstance(order, Finish):
                finish = order
            else:
                self._orders.carry_out(order)
        if finish is not None:
            await self._finish(finish)
        return finish

    async def _clean_up(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._refusals.close()
        await self._ranks.close()
        self._decisions.close()

    def _emit(self, event: Event) -> None:
        self._lookout.on_event(event)
        if isinstance(event, RanksStarted):
            self._transfers.begin()
        if isinstance(event, RanksStraggled) and event.by_node:
            self._watch.straggled(event)
        if self._is_script and isinstance(event, RankExited):
            self._spawn(self._script.ended(event))
        elif isinstance(event, RanksStopped) or (isinstance(event, RankExited) and event.code == 0):
            # What was saved last may be on its way to a commit, and the answer to why we stop on
            # its way from the scheduler: the decision that follows needs both.
            self._spawn(self._when_settled(event))
        else:
            self._events.put_nowait(event)
            if isinstance(event, CheckpointCommitted) and self._drill.due(event.step):
                self._spawn(self._drill.run(event.step))

    async def _when_settled(self, event: Event) -> None:
        await self._saves.settle(self._left_s)
        await self._reasons.settled()
        self._events.put_nowait(event)

    def _spawn(self, work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            _log.error("what was done beside the loop has failed", exc_info=error)

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
            resumed=self._allocation.resumed and self._life == 1,
        )

    async def _finish(self, order: Finish) -> None:
        await self._saves.settle(self._left_s)
        await self._handle(self._waiting())
        await asyncio.to_thread(leave_verdict, self._folder, order)
        await self._orders.answered()
        await self._saves.archiving.end(order.outcome)
        await self._handle(self._waiting())  # nothing follows but that a successor is taken back
        # Ranks that have ended tell of no step any more, and what they saved is as sure.
        reached = max(self._state.committed_step, min(self._saves.steps.values(), default=-1))
        step = reached if reached >= 0 else None
        told = await notify(self._config, order, step, self._left_s())
        seen = await self._watch.after(order, self._state)
        await self._handle([*told, *seen])
        there, left_s = self._ranks.with_agents, self._left_s()
        await remove_leftovers(self._config, self._cluster, self._state, there, left_s)
        if order.outcome is not Outcome.INTERRUPTED:  # Slurm may start that job again, as a whole
            await asyncio.to_thread(self._cluster.give_back, gone(self._state))
        await self._show()

    # Signals and time

    def _on_signal(self, name: str) -> None:
        if self._is_script:
            self._spawn(self._script.pass_on(name))
        if name != "SIGCONT":
            self._ask_why(name, to_supervisor=True)

    def _on_agents_signal(self, name: str) -> None:
        """A signal that an agent was sent, or a program."""
        if not self._is_script and name != "SIGCONT":
            self._ask_why(name)

    def _ask_why(self, name: str, *, to_supervisor: bool = False) -> None:
        self._spawn(self._reasons.ask(name, to_supervisor=to_supervisor))

    async def _tick(self) -> None:
        """What happens because time passes."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(_TICK_S)
            if (paused_s := time.monotonic() - begun) > _PAUSED_S:
                # A suspended job, or a host that slept: the silence of others was our own.
                self._ranks.forgive_silence()
                self._pace.pause_over(time.monotonic(), paused_s)
                continue
            silent = self._ranks.look_for_silence()
            if self._state.phase is not Phase.STARTING:  # then those of the step before go
                for rank in silent:
                    self._saves.lost(rank)
            self._lookout.look(self._state)
            self._saves.doubted = self._lookout.doubted
            auto_s = cadence(self._state.past, self._config.nodes).interval_s
            if self._state.phase is Phase.RUNNING and self._saves.due(auto_s):
                self._spawn(self._saves.order_save(self._ranks.alive))
            marks = await self._marks.now(_TICK_S) or Marks()
            self._requests.look(self._state.phase, marks.wanted)
            await self._reasons.look(marks, self._state.stop, self._state.phase)
            await self._show()

    def _can_save(self) -> bool:
        """Whether all ranks would save if they were told to, as far as can be known."""
        ready = bool(self._ranks.alive) and self._ranks.alive <= self._saves.steps.keys()
        return ready and self._state.unsaved is None

    def _kill_at(self) -> float | None:
        return self._state.stop.kill_at if self._state.stop is not None else None

    def _left_s(self) -> float:
        """For commits, so that what follows them fits before the kill."""
        return Deadline(self._kill_at(), None).left_s(time.time())

    def _time_needed_s(self) -> float:
        """What a save at the end of the allocation takes, with what comes before and after it."""
        return Deadline(None, self._saves.last_seconds, self._pace.longest_step_s).need_s

    async def _show(self) -> None:
        reached = min(self._saves.steps.values(), default=None)
        self._standing = Standing(
            attempt=self._allocation.attempt,
            job_id=self._allocation.job_id,
            generation=self._state.generation,
            phase=self._state.phase.value,
            step=reached,
            nodes=self._state.active or self._state.nodes,
            excluded=tuple(asdict(exclusion) for exclusion in self._state.excluded),
            last_checkpoint=self._state.committed_step if self._state.committed_step >= 0 else None,
            steps_per_s=self._rate.update(reached, time.monotonic()),
            end_time=self._reasons.end_time,
            transfer=self._transfers.look(time.monotonic(), self._ranks.places),
            wait=self._waits.look(self._state, self._waited(), time.time()),
            health=(*self._watch.said(self._state.degraded), *self._lookout.said, *self._drill.saw),
        )
        await self._progress.now(_TICK_S)

    def _waited(self) -> Waited:
        return Waited(
            start=self._orders.start_awaits,
            absent=self._ranks.absent,
            places=self._ranks.places,
            speaking=self._saves.speaking,
            begun=self._saves.steps.keys(),
            world_size=self._ranks.world_size,
        )
