"""The processes of a node, as the kernel lists them (man 5 proc).

A name is any bytes that its user likes, and is cut after 15 of them (man 2 prctl, PR_SET_NAME): it
may be no UTF-8.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """``state`` is one letter, ``started_s`` the time from the boot to its start."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_ticks: int
    started_s: float


def processes(root: Path) -> Iterator[Process]:
    """All that are there and can be understood. Raises OSError where there is no list."""
    for entry in (root / "proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        with contextlib.suppress(ValueError, IndexError):
            yield _process(int(entry.name), text)


def _process(pid: int, text: str) -> Process:
    # The name stands in parentheses and may hold any character.
    name = text[text.index("(") + 1 : text.rindex(")")]
    state, parent, *rest = text[text.rindex(")") + 1 :].split()
    return Process(
        pid=pid,
        name=name,
        state=state,
        parent=int(parent),
        cpu_ticks=int(rest[9]) + int(rest[10]),
        started_s=int(rest[17]) / _TICKS_PER_S,
    )
