"""The watch over the nodes while ranks run: one light step beside theirs, and what it has to say.

The step holds a sleeping process on every node, spares included, and takes nothing from the
scheduler between looks. It begins when the first look is due: the preflight has just looked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ..config import RunConfig
from ..decide.actions import ExcludeNode, Finish, Outcome
from ..decide.degrade import DEGRADED
from ..decide.events import (
    Event,
    NodeDegraded,
    NodesExamined,
    NodesWatched,
    RanksStraggled,
)
from ..decide.state import Exclusion, State
from ..health.collect import Stamp, read_reports, stamps
from ..health.exclusion import record_exclusion, record_slow_steps, record_trends
from ..health.result import NodeReport
from ..health.running import judge_running
from ..health.trends import Sample, Trend, trends
from ..health.watch import LOOK_S
from ..run_folder import RunFolder
from .cluster import Allocation, Cluster
from .nodes import OUTAGE_S, look_at_once
from .watch_step import WatchStep

_log: Final = logging.getLogger(__name__)
POLL_S: Final = 5.0  # for a look at the folder's date
_TICK_S: Final = 2.0  # of the coarsest clock of a disk
_ASK_AGAIN_S: Final = 20.0
_ENOUGH: Final = 0.75  # have answered: the rest cannot make a fault everybody's


def looks_back(order: Finish, state: State, every_s: float, elapsed_s: float) -> bool:
    """Whether the nodes are looked at once more after the end (pure).

    After a failure, and after an attempt so long that another look is due; not while the scheduler
    ends the job, and not with checks switched off (``every_s`` 0).
    """
    if not every_s or state.stop is not None:
        return False
    if order.outcome in (Outcome.FAILED, Outcome.STOPPED):
        return True
    return order.outcome is Outcome.COMPLETED and elapsed_s >= every_s


class Watch:
    """Reports NodesWatched and NodeDegraded by ``emit``.

    ``healthy`` are the nodes that the run does not avoid, ``generation`` the one that runs,
    ``can_save`` whether all its ranks would save a step if they were asked.
    """

    def __init__(
        self,
        config: RunConfig,
        cluster: Cluster,
        allocation: Allocation,
        emit: Callable[[Event], None],
        healthy: Callable[[], tuple[str, ...]],
        generation: Callable[[], int],
        can_save: Callable[[], bool],
    ) -> None:
        self._config = config
        self._allocation = allocation
        self._began = time.monotonic()
        self._over = False
        self._every_s = config.health.during_s
        self._cluster = cluster
        self._nodes = allocation.nodes
        self._out_dir = RunFolder(config.run_dir).watch(allocation.attempt)
        self._emit = emit
        self._healthy = healthy
        self._generation = generation
        self._can_save = can_save
        self._step = WatchStep(config, cluster, self._out_dir, healthy)
        self._date_ns = -1
        self._dated_at = 0.0  # when this date was first seen, by the monotonic clock
        self._read_at = 0.0
        self._stamps: dict[str, Stamp] = {}
        self._reports: dict[str, NodeReport | None] = dict.fromkeys(self._nodes)
        self._bad: dict[str, str] = {}
        self._asked: set[str] = set()  # the bad ones for whose sake all others were asked
        self._asking_for: tuple[str, ...] = ()
        self._ask_until = 0.0
        self._wanted = 0  # that many are asked
        self._asking: asyncio.Task[dict[str, NodeReport]] | None = None
        # What others said when asked, until their own watch has looked again.
        self._looked: dict[str, NodeReport] = {}
        self._looked_until = 0.0
        self._accused: dict[str, tuple[int, bool]] = {}
        self._first: dict[str, Sample] = {}
        self._told: dict[str, frozenset[str]] = {}  # which trends of a node the ledger has
        self._checks: tuple[str, ...] = ()
        self._growing: list[Trend] = []
        self._warnings: tuple[str, ...] = ()
        self._news: tuple[object, ...] = ((),)

    def said(self, degraded: Sequence[Exclusion]) -> tuple[str, ...]:
        """For people: the nodes that turned bad, and what the checks warn of."""
        return (*(f"{one.node} turns bad: {one.evidence}" for one in degraded), *self._warnings)

    def straggled(self, event: RanksStraggled) -> None:
        """Steps that take longer on one node are a sign, too."""
        note = partial(record_slow_steps, self._config.run_id, event.node, event.detail)
        asyncio.get_running_loop().run_in_executor(None, note, time.time())

    async def after(self, order: Finish, state: State) -> list[Event]:
        """The last look, where one is due; the ledger keeps what it finds against nodes."""
        await self._end()
        if not looks_back(order, state, self._every_s, time.monotonic() - self._began):
            return []
        try:
            found = await look_at_once(self._config, self._cluster, self._allocation, state.healthy)
        except OSError as error:
            _log.warning("the nodes are not looked at after the run: %s", error)
            return []
        judgement = judge_running(dict.fromkeys(state.healthy) | found)
        seen = NodesExamined(bad=dict(judgement.bad), warnings=judgement.warnings)
        for node, evidence in seen.bad.items():
            left = ExcludeNode(node=node, cause=DEGRADED, reason=evidence)
            attempt = self._allocation.attempt
            await asyncio.to_thread(record_exclusion, self._config, attempt, left, time.time())
        return [seen]

    async def run(self) -> None:
        """Watch until cancelled; the step ends with it."""
        if not self._every_s:
            return
        try:
            while not self._over:
                begun = self._step.begun
                await asyncio.sleep(min(self._every_s, POLL_S) if begun else self._every_s)
                if not begun and self._generation() < 1:
                    continue  # the preflight is still looking
                try:
                    if not begun:
                        self._first = await asyncio.to_thread(self._before)
                    await self._step.keep()
                    fresh = await asyncio.to_thread(self._new_reports)
                except OSError as error:  # an outage of the run folder's disk ends no run
                    _log.warning("the nodes are not watched for now: %s", error)
                    continue
                if fresh:
                    self._reports |= fresh
                    for node in fresh:  # its own word is the newer one
                        self._looked.pop(node, None)
                asked = self._answered()
                if fresh or asked or self._forget_looks():
                    self._judge()
                    self._ask_the_others(asked)
                self._tell()
                self._accuse()
        finally:
            await self._end()

    def _before(self) -> dict[str, Sample]:
        """The counters at the preflight: there growth begins."""
        out_dir = RunFolder(self._config.run_dir).preflight(self._allocation.attempt)
        reports = read_reports(out_dir, self._nodes).values()
        return {one.node: Sample(one.started, one.counts) for one in reports if one is not None}

    def _new_reports(self) -> dict[str, NodeReport]:
        """The reports that have come: a file that is renamed changes its folder's date.

        One that comes within the same tick of the disk's clock does not, so that reports are looked
        for until the date is older than that.
        """
        date_ns, now = self._out_dir.stat().st_mtime_ns, time.monotonic()
        if date_ns != self._date_ns:
            self._date_ns, self._dated_at = date_ns, now
        elif self._read_at > self._dated_at + _TICK_S:
            return {}
        known = self._stamps
        found = stamps(self._out_dir, self._nodes)
        # Of a thousand nodes mostly one has something to say.
        changed = [node for node in found if found[node] != known.get(node)]
        told = read_reports(self._out_dir, changed)
        heard = {node: report for node, report in told.items() if report is not None}
        self._stamps = known | {node: found[node] for node in heard}
        if len(heard) == len(changed):  # else they are looked for again
            self._read_at = now
        return heard

    def _judge(self) -> None:
        judgement = judge_running(self._reports | self._looked)
        self._bad = dict(judgement.bad)
        self._checks = judgement.warnings
        self._growing = self._trends(self._reports)

    def _tell(self) -> None:
        """What people are warned of, when that is news."""
        bad = self._asking_for if self._asking is not None else ()
        asking = (
            f"{node} fails: {self._bad[node]}; the other nodes are asked"
            for node in bad
            if node in self._bad
        )
        said = (*self._checks, *asking, *filter(None, (self._step.unwatched(),)))
        self._warnings = (*said, *(f"{trend} ({trend.node})" for trend in self._growing))
        # That a counter has grown still more is no news.
        news = (said, *((trend.node, trend.counter) for trend in self._growing))
        if news != self._news:
            self._news = news
            self._emit(NodesWatched(warnings=self._warnings))

    def _trends(self, reports: dict[str, NodeReport | None]) -> list[Trend]:
        """What grows on single nodes since the attempt began; the ledger keeps it."""
        known = {node: report for node, report in reports.items() if report is not None}
        last = {node: Sample(report.started, report.counts) for node, report in known.items()}
        for node, sample in last.items():
            first = self._first.get(node, sample)  # not all is counted before the first look
            self._first[node] = Sample(first.time, {**sample.counts, **first.counts})
        seen = trends(self._first, last)
        for node in dict.fromkeys(trend.node for trend in seen):
            of_node = [trend for trend in seen if trend.node == node]
            kinds = frozenset(trend.counter for trend in of_node)
            if kinds != self._told.get(node):
                self._told[node] = kinds
                note = partial(record_trends, self._config.run_id, of_node, known[node].identity)
                asyncio.get_running_loop().run_in_executor(None, note, time.time())
        return seen

    def _ask_the_others(self, asked: bool) -> None:
        """What one node says first the others may say too, who have not looked since.

        ``asked``: they have just been.
        """
        if self._asking is not None:
            return
        fresh = () if asked else tuple(sorted(self._bad.keys() - self._asked))
        self._asked = self._asked | set(self._bad) if asked else set(self._bad)
        if fresh:
            self._asking_for, self._ask_until = fresh, time.monotonic() + OUTAGE_S
            self._ask(0.0)

    def _ask(self, delay_s: float) -> None:
        others = tuple(node for node in self._healthy() if node not in self._bad)
        if not others:
            return

        async def look() -> dict[str, NodeReport]:
            await asyncio.sleep(delay_s)
            return await look_at_once(
                self._config, self._cluster, self._allocation, others, _ENOUGH
            )

        self._wanted, self._asking = len(others), asyncio.create_task(look())

    def _answered(self) -> bool:
        """Whether the others have said by now what they had to say.

        Silence is no word for them, nor against the bad one: a scheduler that starts no step now
        would start no ranks elsewhere either. They are asked again, for as long as an outage may
        last.
        """
        if self._asking is None or not self._asking.done():
            return False
        asking, self._asking = self._asking, None
        try:
            looked = asking.result()
        except OSError as error:
            _log.warning("the other nodes are not asked: %s", error)
            looked = {}
        if 2 * len(looked) < self._wanted and time.monotonic() < self._ask_until:
            self._ask(_ASK_AGAIN_S)
            return False
        self._looked, self._looked_until = looked, time.monotonic() + self._every_s + LOOK_S
        return True

    def _forget_looks(self) -> bool:
        over = bool(self._looked) and time.monotonic() > self._looked_until
        if over:
            self._looked = {}
        return over

    def _accuse(self) -> None:
        """Name each bad node, and again when another generation runs, or can save by now."""
        if self._asking is not None:
            return
        now, known = (self._generation(), self._can_save()), self._healthy()
        for node, evidence in self._bad.items():
            if node in known and self._accused.get(node) != now:
                self._accused[node] = now
                self._emit(NodeDegraded(node=node, evidence=evidence, can_save=now[1]))

    async def _end(self) -> None:
        self._over = True
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await self._step.end()
