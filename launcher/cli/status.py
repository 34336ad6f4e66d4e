"""``relight status``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import click

from relight.errors import RelightError

from ..presence import read_facts, unreadable
from ..queue import Queue
from ..runs import StoredRun, all_runs, find_run, runs_dir
from ..shared_answer import answer_file
from ..status import Status, status
from ..transfers import over_bar, sentence
from .run_argument import complete_run

_TICK_S: Final = 1.0
_HEADINGS: Final = (
    "RUN",
    "STATE",
    "JOB",
    "STEP",
    "CHECKPOINT",
    "NODES",
    "TIME LEFT",
    "WAITS FOR",
)
Look = Callable[[], list[Status]]


@click.command("status")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--watch", is_flag=True, help="Go on, until the run has ended or you stop it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, watch: bool, as_json: bool) -> None:
    """Say where RUN stands (a run id, its beginning, a job id or a path), or list all runs."""
    queue = Queue(shared=answer_file(os.environ))
    told: set[str] = set()
    stored = None if run is None else find_run(run)

    def look() -> list[Status]:
        if stored is not None:
            return [status(read_facts(stored, queue))]
        return [_one_of_many(run, queue) for run in all_runs(complain)]

    def complain(fault: str) -> None:
        if fault not in told:
            click.echo(f"relight: warning: {fault}", err=True)
        told.add(fault)

    def text(found: list[Status]) -> str:
        if as_json:
            told = [one.to_json() for one in found]
            return json.dumps(told if stored is None else told[0])
        if stored is None:
            return _listed(found) if found else f"there are no runs in {runs_dir()}"
        return as_text(found[0])

    if not watch:
        click.echo(text(look()))
        return
    try:
        if sys.stdout.isatty() and not as_json:
            _watch_terminal(look, text, one=stored is not None)
        else:
            _watch_lines(look, text, one=stored is not None)
    except KeyboardInterrupt:
        return  # the way to end it


def _one_of_many(run: StoredRun, queue: Queue) -> Status:
    """The damage of one run must not hide the others."""
    try:
        return status(read_facts(run, queue, alone=False))
    except (RelightError, OSError) as error:
        return status(unreadable(run, error))


def _watch_terminal(look: Look, text: Callable[[list[Status]], str], *, one: bool) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            found = look()
            if one:
                transfer = found[0].transfer
                told = Text.from_ansi(text([replace(found[0], transfer=None)]))
                live.update(over_bar(told, transfer) if transfer else told, refresh=True)
            else:
                lines = most_wanted(found, live.console.height, text)
                live.update(Text.from_ansi(lines, no_wrap=True, overflow="ellipsis"), refresh=True)
            if one and found[0].state.final:
                return
            time.sleep(_TICK_S)


def most_wanted(found: list[Status], lines: int, text: Callable[[list[Status]], str]) -> str:
    """What fits into so many lines of a terminal: runs that have not ended first, newest first."""
    newest_first = found[::-1]
    ordered = sorted(newest_first, key=lambda one: one.state.final)
    shown = ordered[: max(1, lines - 3)]  # a heading, how many are left out, and the cursor
    left = len(ordered) - len(shown)
    return text(shown) + (f"\nand {left} more" if left else "")


def _watch_lines(look: Look, text: Callable[[list[Status]], str], *, one: bool) -> None:
    """Says it again when something has changed that a person would act upon."""
    before: object = None
    while True:
        found = look()
        now = [(s.run_id, s.state, s.attempt, s.generation, s.last_checkpoint) for s in found]
        if now != before:
            click.echo(text(found))
            sys.stdout.flush()
        if one and found[0].state.final:
            return
        before = now
        time.sleep(_TICK_S)


def as_text(one: Status) -> str:
    """A line for each thing that is known of a run."""
    step = None if one.step is None else f"{one.step}{_rate(one)}"
    silent = f"the supervisor has written nothing for {one.silent_s} s"
    fields = {
        "run": one.run_id,
        "state": one.state.value + (f" ({one.reason})" if one.reason else ""),
        "tasks": _tasks(one),
        "waits for": one.waits_for,
        "attention": silent if one.silent_s is not None else None,
        "job": one.job_id,
        "attempt": one.attempt,
        "generation": one.generation,
        "phase": one.phase if one.state == "RUNNING" else None,
        "step": step,
        "now": None if one.transfer is None else sentence(one.transfer),
        "time left": _duration(one.time_left_s),
        "last checkpoint": one.last_checkpoint,
        "nodes" if one.state == "RUNNING" else "ran on": ", ".join(one.nodes) or None,
        "excluded": ", ".join(one.excluded) or None,
        "health": "\n                ".join(one.health) or None,
        "folder": one.run_dir,
    }
    return "\n".join(f"{key:16}{value}" for key, value in fields.items() if value is not None)


def _listed(found: list[Status]) -> str:
    """A line for each run, never wrapped: run ids are there to be copied. Empty columns go."""
    rows = [_HEADINGS, *(_cells(one) for one in found)]
    shown = [n for n in range(len(_HEADINGS)) if n < 2 or any(row[n] for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in shown}
    lines = ("  ".join(f"{row[n]:{widths[n]}}" for n in shown) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _cells(one: Status) -> tuple[str, ...]:
    step = None if one.step is None else f"{one.step}{_rate(one)}"
    nodes = len(one.nodes) or None
    waits = _tasks(one) or one.waits_for
    cells = (one.run_id, one.state.value, one.job_id, step, one.last_checkpoint, nodes)
    return tuple(
        "" if cell is None else str(cell) for cell in (*cells, _duration(one.time_left_s), waits)
    )


def _tasks(one: Status) -> str | None:
    if one.tasks is None:
        return None
    return ", ".join(f"{count} {state.lower()}" for state, count in sorted(one.tasks.items()))


def _rate(one: Status) -> str:
    if one.steps_per_s is None:
        return ""
    slow = one.steps_per_s < 1
    return f" ({1 / one.steps_per_s:.3g} s each)" if slow else f" ({one.steps_per_s:.3g}/s)"


def _duration(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
