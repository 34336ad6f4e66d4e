"""What the exit and the last lines of a rank say about the cause of its end, as a table of rules.

The table itself is data (``supervise/rules.yaml``, and the site's own); here is what a rule means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .causes import FaultCause
from .events import RankExited

# What relight itself tells in a rank's output is evidence already, and may be over by now.
_OUR_WORDS: Final = re.compile(r"relight: rank \d+: ")
# Before each line of a traceback, by torch.distributed and by torchrun's --tee.
_WHOSE: Final = re.compile(r"(\[default\d+\]:)?(\[rank\d+\]: )?")
_FRAME: Final = re.compile(r'\s*File "[^"]*", line \d+')
_CODE: Final = " " * 4  # begins what a traceback quotes below a frame


class Blame(StrEnum):
    """What a rule says of the node that the rank was on."""

    NONE = "none"
    SUSPECT = "suspect"  # twice the same there, and nowhere else, is enough to avoid the node
    NODE = "node"  # once is enough


class Budget(StrEnum):
    """How often a cause may come back before the run ends; a newer checkpoint resets all counts."""

    COUNTED = "counted"  # restart.failures
    FREE = "free"  # as long as restart.no_progress allows
    ONCE = "once"  # it is likely to come back
    START_UP = "start-up"  # once as long as nothing was ever saved, then counted
    START_UP_ALIKE = "start-up of all ranks"  # not at all as long as nothing was saved, then once
    STOP = "stop"  # a restart would be in vain
    WAITED = "waited"  # likewise no rule's: it was waited out, and such waits end by themselves
    NODE = "node"  # follows from the evidence, never from a rule: a node was found guilty


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Fits when each condition that it has is met: one of ``lines``, ``signals``, ``codes``."""

    id: str
    cause: FaultCause
    lines: tuple[re.Pattern[str], ...] = ()
    signals: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    blame: Blame = Blame.NONE
    cascade: bool = False  # the rank only noticed that somebody else had failed
    budget: Budget = Budget.COUNTED
    advice: str = ""  # to the user, for when the run ends by it

    def line(self, tail: Iterable[str]) -> str | None:
        """The first line that fits."""
        return next((line for line in tail if any(p.search(line) for p in self.lines)), None)


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that fits, and the line that proves it, if a line does."""

    rule: Rule
    line: str | None


def without_rank(line: str) -> str:
    """A line as the program has said it."""
    return _WHOSE.sub("", line, count=1)


def _without_code(tail: Iterable[str]) -> Iterator[str]:
    """What a program has said, not the lines of its source that a traceback shows: one that looks
    for an error, or raises it, names it too."""
    lines = [without_rank(line) for line in tail]
    in_frame = any(_FRAME.match(line) for line in lines)  # the first one may be cut off
    for line in lines:
        is_frame = _FRAME.match(line) is not None
        in_frame = is_frame or (in_frame and line.startswith(_CODE))
        if is_frame or not in_frame:
            yield line


def first_match(rules: Iterable[Rule], exit_: RankExited) -> Match | None:
    """The first rule of the table that fits: its order is its precedence."""
    said = [line for line in _without_code(exit_.tail) if not _OUR_WORDS.match(line)]
    for rule in rules:
        if rule.budget is Budget.STOP and exit_.signal == "SIGKILL":
            continue  # after what it wrote it went on, until somebody ended it
        line = rule.line(said)
        if (
            (line is not None or not rule.lines)
            and (not rule.signals or exit_.signal in rule.signals)
            and (not rule.codes or exit_.code in rule.codes)
        ):
            return Match(rule, line)
    return None
