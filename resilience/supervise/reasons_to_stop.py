"""Why an attempt has to stop: a signal that somebody sent, the time limit, a cancel by the user.

A signal by itself says nothing: the cluster is asked what it means, once for many of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..config import RunConfig
from ..decide.causes import StopCause
from ..decide.events import Event, StopRequested
from ..decide.state import Phase, Stop
from ..run_folder import RunFolder
from .cluster import Cluster, ClusterUnavailable, StopNotice
from .marks import Marks, look_for_cancel

_log: Final = logging.getLogger(__name__)
_TRIES: Final = 5  # to learn why a signal came
_PAUSE_S: Final = 1.0
_MARGIN_S: Final = 10.0  # for the commit, the end of the ranks and the next job
_CANCEL_WINDOW_S: Final = 30.0  # KillWait of slurm.conf(5), by default
_EXTENDED_S: Final = 1.0  # end times are told in whole seconds
_END_LIMIT_S: Final = 30.0  # for a program that is told to end and knows nothing of relight
_BEFORE_START: Final = "asked before ranks start"
_CANNOT_LEAVE: Final = (Phase.NEW, Phase.MOVING, Phase.ENDED)
_ENDS: Final = frozenset(
    {StopCause.PREEMPTED, StopCause.TIME_LIMIT, StopCause.REQUEUED, StopCause.CANCELLED}
)


def cancelled(evidence: str, now: float) -> StopRequested:
    """The user has ended the run for good."""
    return StopRequested(
        cause=StopCause.CANCELLED,
        kill_at=now + _CANCEL_WINDOW_S,
        evidence=evidence,
    )


def stop_by_user(cause: StopCause, evidence: str, *, can_save: bool) -> StopRequested:
    """Ranks that can save have the time that it takes; others have nothing to do with it."""
    kill_at = None if can_save else time.time() + _END_LIMIT_S
    return StopRequested(cause=cause, kill_at=kill_at, evidence=evidence)


class ReasonsToStop:
    """Reports StopRequested by ``emit``.

    ``can_save`` says whether the program would save if it were asked; ``time_needed_s`` is what a
    save would take now; ``on_warning`` hears that the job of a batch script will end, why, and by
    which signal. A batch script is not stopped by us: warnings reach it as Slurm sends them,
    and what it makes of them is its own business until Slurm ends the job.
    """

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        emit: Callable[[Event], None],
        can_save: Callable[[], bool],
        time_needed_s: Callable[[], float],
        on_warning: Callable[[StopNotice, str], object],
    ) -> None:
        self._script = config.program == "script"
        self._saves_itself = config.checkpoint.signal is not None
        self._least_lead_s = config.checkpoint.lead_s
        self._can_save = can_save
        self._time_needed_s = time_needed_s
        self._on_warning = on_warning
        self._begun = time.time()
        self._folder = RunFolder(config.run_dir)
        self._cluster = cluster
        self._emit = emit
        self._settled = asyncio.Event()
        self._settled.set()
        self._unasked: str | None = None  # came to the supervisor while another was asked about
        self._end_time: float | None = None
        self._warning: StopNotice | None = None  # what a batch script was warned of

    @property
    def _lead_s(self) -> float:
        if self._script:  # whose time limit was for sbatch to say: never from the beginning
            granted_s = (self._end_time or self._begun) - self._begun
            return min(self._least_lead_s, granted_s / 4)
        return max(self._least_lead_s, _MARGIN_S + self._time_needed_s())

    @property
    def end_time(self) -> float | None:
        """The last that was heard of it."""
        return self._end_time

    def read_end_time(self) -> float | None:
        """When the time limit ends the attempt; the last known answer while there is no other."""
        try:
            self._end_time = self._cluster.end_time()
        except ClusterUnavailable as error:
            _log.warning("the time limit is not known for now: %s", error)
        return self._end_time

    async def ask(self, signal_name: str, *, to_supervisor: bool) -> None:
        """Find out what a signal means; while nobody knows, the ranks save and we ask again."""
        if not self._settled.is_set():
            if to_supervisor:  # that one may mean more than what came to ranks
                self._unasked = signal_name
            return
        self._settled.clear()
        try:
            await self._ask_until_known(signal_name, to_supervisor)
            while (unasked := self._unasked) is not None:
                self._unasked = None
                await self._ask_until_known(unasked, to_supervisor=True)
        finally:
            self._settled.set()

    async def _ask_until_known(self, signal_name: str, to_supervisor: bool) -> None:
        for _ in range(_TRIES):
            if await self._ask_once(signal_name, to_supervisor) is not StopCause.UNKNOWN:
                return
            await asyncio.sleep(_PAUSE_S)

    async def ask_after_end(self) -> None:
        """A script has ended by itself: maybe since Slurm, or the script, has ended the job."""
        await self.settled()
        notice = await asyncio.to_thread(
            self._cluster.stop_notice, "the end of the script", to_supervisor=False
        )
        if notice.cause not in _ENDS and await self.still_warns():
            notice = self._warning or notice
        if notice.cause in _ENDS:
            self._emit(stop_of(notice, "the script ended"))

    async def still_warns(self) -> bool:
        """Whether what a script was warned of still comes: a time limit may have been extended
        since, and then the script is warned again."""
        warning = self._warning
        if warning is None or warning.cause is not StopCause.TIME_LIMIT or warning.kill_at is None:
            return warning is not None
        end_time = await asyncio.to_thread(self.read_end_time)
        if end_time is None or end_time < warning.kill_at + _EXTENDED_S:
            return True
        _log.info("the time limit was extended by %.0f s", end_time - warning.kill_at)
        if self._warning is warning:
            self._warning = None
        return self._warning is not None

    async def look_before_start(self) -> None:
        """Of a preemption Slurm tells the steps: while there are none, nobody has heard of it."""
        if self._script:
            return
        await self.settled()
        notice = await asyncio.to_thread(
            self._cluster.stop_notice, _BEFORE_START, to_supervisor=False
        )
        if notice.cause in _ENDS:
            self._emit(stop_of(notice, _BEFORE_START))

    async def settled(self) -> None:
        """Wait until it is known, or will not be known, why a signal came."""
        await self._settled.wait()

    async def _ask_once(self, signal_name: str, to_supervisor: bool) -> StopCause:
        mark = await look_for_cancel(self._folder)
        if mark is not None:
            self._emit(cancelled(mark, time.time()))
            return StopCause.CANCELLED
        notice = await asyncio.to_thread(
            self._cluster.stop_notice, signal_name, to_supervisor=to_supervisor
        )
        if notice.cause is StopCause.SIGNALLED and not self._can_save():
            _log.info("%s: %s; nothing is done about it", signal_name, notice.evidence)
        elif self._script and notice.warning:
            self._warn(notice, signal_name)
        elif not self._too_early(notice):
            self._emit(stop_of(notice, signal_name))
        return notice.cause

    def _too_early(self, notice: StopNotice) -> bool:
        """Slurm may warn of the limit a minute early (sbatch(1)); the clock knows better."""
        return (
            notice.cause is StopCause.TIME_LIMIT
            and notice.kill_at is not None
            and notice.kill_at == self._end_time
            and notice.kill_at - time.time() > self._lead_s
        )

    async def look(self, marks: Marks, known: Stop | None, phase: Phase) -> None:
        """Heed marks of the user and the clock; ``known`` is the stop that is under way."""
        if known is not None and known.cause is StopCause.CANCELLED:
            return
        if marks.cancelled is not None:
            self._emit(cancelled(marks.cancelled, time.time()))
        elif known is not None and known.ends_allocation:
            return
        elif self._script:
            await self._look_for_limit_of_script()
        elif phase in _CANNOT_LEAVE:
            return
        elif marks.held:
            can_save = self._can_save() or self._saves_itself
            self._emit(stop_by_user(StopCause.HELD, "relight hold was called", can_save=can_save))
        elif self._limit_is_near():
            await asyncio.to_thread(self.read_end_time)  # it may have been extended
            if self._limit_is_near():
                self._emit(self._time_limit())

    async def _look_for_limit_of_script(self) -> None:
        warned = self._warning
        overdue = warned is not None and time.time() > (warned.kill_at or float("inf"))
        if warned is not None and overdue and await self.still_warns() and self._warning is warned:
            self._warning = replace(warned, kill_at=None)  # asked once
        if self._warning is None and self._limit_is_near():
            await asyncio.to_thread(self.read_end_time)
            if self._limit_is_near():
                evidence = "the time limit is near"
                cause = StopCause.TIME_LIMIT
                notice = StopNotice(
                    cause=cause, kill_at=self._end_time, evidence=evidence, warning=True
                )
                self._warn(notice, "")

    def _warn(self, notice: StopNotice, signal_name: str) -> None:
        if self._warning is None:
            self._on_warning(notice, signal_name)
        self._warning = notice

    def _limit_is_near(self) -> bool:
        return self._end_time is not None and time.time() >= self._end_time - self._lead_s

    def _time_limit(self) -> StopRequested:
        assert self._end_time is not None
        left_s = self._end_time - time.time()
        return StopRequested(
            cause=StopCause.TIME_LIMIT,
            kill_at=self._end_time,
            evidence=f"the time limit ends this attempt in {left_s:.0f} s",
        )


def stop_of(notice: StopNotice, occasion: str) -> StopRequested:
    """What the cluster has said, as the event that it is."""
    return StopRequested(
        cause=notice.cause, kill_at=notice.kill_at, evidence=f"{occasion}: {notice.evidence}"
    )
