"""Whether ranks still move: limits learned from the run's own steps. Pure; times are in seconds.

The step that *all* ranks have reached must move. How long it may stand is learned: a multiple of
the longest that it took in this generation, never below a floor (nvidia-resiliency-ext learns its
timeouts alike, with a factor of 5). Start and first step have a limit of their own, and so has each
section that a rank says it is in, such as a save or an evaluation. Those of the start and of a save
hold for as long as no more bytes are read or written: a large state on a slow disk takes its time.
What follows the last step is like a section: when all ranks have come to it, they have as long as
any section to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..config import RestartConfig
from ..messages import Message, number, text

FACTOR: Final = 5.0
FLOOR_S: Final = 60.0
START_LIMIT_S: Final = 1800.0
SECTION_LIMIT_S: Final = 1800.0
SAVE: Final = "save"  # the section in which a rank of the API writes
QUIET_S: Final = 12.0  # a program that lives beats every 5 s, whatever its main thread does


@dataclass(frozen=True, slots=True)
class Hang:
    """``ranks`` are those that are behind; all of them when none can be told from the others."""

    ranks: tuple[int, ...]
    detail: str


@dataclass(slots=True)
class _Rank:
    step: int
    heard: float
    sections: list[tuple[str, float]] = field(default_factory=list)  # until when, the outer first

    def has_written(self, now: float) -> None:
        """Its save goes on."""
        self.sections = [
            (name, max(until, now + SECTION_LIMIT_S) if name == SAVE else until)
            for name, until in self.sections
        ]

    def leave(self, section: str) -> None:
        """The inner one of those of this name: a program may call its own like those of relight."""
        for place in reversed(range(len(self.sections))):
            if self.sections[place][0] == section:
                del self.sections[place]
                return


@dataclass(slots=True)
class Pace:
    """The movement of one generation of ranks that use the API."""

    config: RestartConfig
    _world_size: int = field(default=0, init=False)
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _joins: bool = False  # the program uses the API; one generation is like another
    _at_step: Counter[int] = field(default_factory=Counter)  # ranks by their step
    _finished: set[int] = field(default_factory=set)
    _ended: set[int] = field(default_factory=set)
    _done_bytes: dict[int, int] = field(default_factory=dict)  # of a save or a restore
    _known: set[int] = field(default_factory=set)  # have come to their steps, or ended
    _common: int = -1
    _moved: float = 0.0
    _longest: float | None = None

    def begin(self, now: float, world_size: int) -> None:
        """A generation of so many ranks starts; nothing is known of its steps yet."""
        self._world_size = world_size
        self._ranks.clear()
        self._at_step.clear()
        self._finished.clear()
        self._ended.clear()
        self._done_bytes.clear()
        self._known.clear()
        self._common, self._moved, self._longest = -1, now, None

    def on_word(self, rank: int, word: Message, now: float) -> None:
        """What a rank says of its steps and sections (see ``messages``)."""
        moving = word.get("moving")
        if isinstance(moving, Mapping):
            self._has_moved(rank, number(moving, "done_bytes"), now)
        match word["type"]:
            case "joined":
                self._joins = True
            case "restored" | "beat":
                self._heard(rank, number(word, "step"), now)
            case "entered" if rank in self._ranks:
                limit_s = word.get("limit_s")
                limit_s = limit_s if isinstance(limit_s, float) else SECTION_LIMIT_S
                self._ranks[rank].sections.append((text(word, "section"), now + limit_s))
            case "left" if rank in self._ranks:
                self._ranks[rank].leave(text(word, "section"))
                self._moved = now  # the time in the section does not count
            case "finished":
                self._finished.add(rank)
                self._moved = now

    def _has_moved(self, rank: int, done_bytes: int, now: float) -> None:
        """So much of a rank's save or restore is done."""
        if done_bytes == self._done_bytes.get(rank, 0):
            return
        self._done_bytes[rank] = done_bytes
        if rank in self._ranks:
            self._ranks[rank].has_written(now)
        elif rank not in self._known:
            self._moved = now

    def ended(self, rank: int, now: float) -> None:
        """The program of a rank has ended: nobody waits for its steps, no section goes on."""
        if rank in self._ranks and rank not in self._ended:
            self._ranks[rank].sections.clear()
            self._leave(self._ranks[rank].step)
        self._ended.add(rank)
        self._known.add(rank)
        self._moved = now

    def _leave(self, step: int) -> None:
        self._at_step[step] -= 1
        if not self._at_step[step]:
            del self._at_step[step]

    def _heard(self, rank: int, step: int, now: float) -> None:
        if rank in self._ended:
            return
        known = self._ranks.get(rank)
        if known is not None:
            self._leave(known.step)
        known = self._ranks.setdefault(rank, _Rank(step, now))
        known.step, known.heard = step, now
        self._known.add(rank)
        self._at_step[step] += 1
        if len(self._known) < self._world_size:
            return
        common = min(self._at_step)
        if common <= self._common:
            return
        if self._common >= 0:
            # The first step after the start also compiles and warms up: it teaches nothing.
            first = self._longest is None
            self._longest = 0.0 if first else max(self._longest or 0.0, now - self._moved)
        self._common, self._moved = common, now

    def pause_over(self, now: float, paused_s: float) -> None:
        """This process was stopped for a while: nobody could be heard, nor get on."""
        self._moved = now
        for each in self._ranks.values():
            each.heard = now
            each.sections = [(name, until + paused_s) for name, until in each.sections]

    @property
    def longest_step_s(self) -> float:
        """The longest step so far; 0 before there were two."""
        return self._longest or 0.0

    def limit_s(self) -> float:
        """How long the common step may stand."""
        if self._longest is None:
            return START_LIMIT_S
        if self.config.hang_s is not None:
            return self.config.hang_s
        return max(FLOOR_S, FACTOR * self._longest)

    def hang(self, now: float) -> Hang | None:
        """Who hangs; None while all is well, or while nothing is known of a rank."""
        if not self.config.watch_hangs or not self._joins:
            return None
        if len(self._known) < self._world_size:
            return self._late_start(now)
        overdue = [
            (rank, name)
            for rank, each in sorted(self._ranks.items())
            for name, until in each.sections
            if now > until
        ]
        if overdue:
            return Hang(
                tuple(dict.fromkeys(rank for rank, _ in overdue)),
                f"section {overdue[0][1]!r} takes too long",
            )
        if any(each.sections for each in self._ranks.values()):
            return None
        at_work = self._ranks.keys() - self._finished - self._ended
        working = {rank: self._ranks[rank] for rank in at_work}
        if not working:
            return self._late_end(now)
        stood_s = now - self._moved
        if stood_s <= self.limit_s():
            return None
        detail = f"no step in {stood_s:.0f} s, the limit is {self.limit_s():.0f} s"
        return Hang(_behind(working, now), detail)

    def _late_end(self, now: float) -> Hang | None:
        """All steps are done; some programs hang at their exit, or in what they do before it."""
        stood_s = now - self._moved
        staying = {rank: each for rank, each in self._ranks.items() if rank not in self._ended}
        if stood_s <= SECTION_LIMIT_S or not staying:
            return None
        return Hang(_behind(staying, now), f"not ended {stood_s:.0f} s after the last step")

    def _late_start(self, now: float) -> Hang | None:
        """Ranks that use the API must come to their steps, or others wait for them for ever."""
        if now - self._moved <= START_LIMIT_S:
            return None
        absent = tuple(sorted(set(range(self._world_size)) - self._known))
        return Hang(absent, f"no step was begun in {now - self._moved:.0f} s")


def _behind(ranks: Mapping[int, _Rank], now: float) -> tuple[int, ...]:
    """The silent ones before those that wait for them; else those with the lowest step."""
    quiet = [rank for rank, each in ranks.items() if now - each.heard > QUIET_S]
    if 0 < len(quiet) < len(ranks):
        return tuple(sorted(quiet))
    slowest = min(each.step for each in ranks.values())
    return tuple(sorted(rank for rank, each in ranks.items() if each.step == slowest))
