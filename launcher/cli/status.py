"""``relight status``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ..presence import read_facts
from ..queue import Queue
from ..runs import all_runs, find_run
from ..status import Status, status
from .run_argument import complete_run

if TYPE_CHECKING:
    from rich.table import Table

_TICK_S: Final = 1.0
Look = Callable[[], list[Status]]


@click.command("status")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--watch", is_flag=True, help="Go on, until the run has ended or you stop it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, watch: bool, as_json: bool) -> None:
    """Say where RUN stands (a run id, its beginning, a job id or a path), or list all runs."""
    queue = Queue()
    stored = None if run is None else find_run(run)

    def look() -> list[Status]:
        return [status(read_facts(one, queue)) for one in ([stored] if stored else all_runs())]

    def text(found: list[Status]) -> str:
        if as_json:
            told = [one.to_json() for one in found]
            return json.dumps(told if stored is None else told[0])
        return _listed(found) if stored is None else _text(found[0])

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


def _watch_terminal(look: Look, text: Callable[[list[Status]], str], *, one: bool) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            found = look()
            live.update(Text.from_ansi(text(found)), refresh=True)
            if one and found[0].state.final:
                return
            time.sleep(_TICK_S)


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


def _text(one: Status) -> str:
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
        "time left": _duration(one.time_left_s),
        "last checkpoint": one.last_checkpoint,
        "nodes": ", ".join(one.nodes) or None,
        "excluded": ", ".join(one.excluded) or None,
        "health": "\n                ".join(one.health) or None,
        "folder": one.run_dir,
    }
    return "\n".join(f"{key:16}{value}" for key, value in fields.items() if value is not None)


def _listed(found: list[Status]) -> str:
    from rich.console import Console

    console = Console()
    with console.capture() as capture:
        console.print(_table(found))
    return capture.get().rstrip("\n")


def _table(found: list[Status]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    headings = ("RUN", "STATE", "JOB", "STEP", "CHECKPOINT", "NODES", "TIME LEFT", "WAITS FOR")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for one in found:
        step = None if one.step is None else f"{one.step}{_rate(one)}"
        left, nodes = _duration(one.time_left_s), len(one.nodes)
        cells = (one.run_id, one.state, one.job_id, step, one.last_checkpoint, nodes, left)
        table.add_row(*("" if cell is None else str(cell) for cell in (*cells, one.waits_for)))
    return table


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
