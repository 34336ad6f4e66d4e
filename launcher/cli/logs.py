"""``relight logs``."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from relight.errors import UsageError
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import read_verdict

from ..rank_logs import LogTail, RankLog, rank_logs, script_output
from ..runs import StoredRun, find_one_run
from .run_argument import complete_run

_TICK_S: Final = 0.5


@click.command("logs")
@click.argument("run", shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends, over restarts.")
@click.option("--rank", type=int, help="Only this rank.")
@click.option("--attempt", help="Only this attempt: its number, from 1, or its name.")
@click.option("--grep", metavar="PATTERN", help="Only lines that match a regular expression.")
@click.option("--json", "as_json", is_flag=True, help="Print the logs' names instead, as JSON.")
def command(
    run: str, follow: bool, rank: int | None, attempt: str | None, grep: str | None, as_json: bool
) -> None:
    """Print what every rank of every attempt of RUN has written."""
    stored = find_one_run(run)
    if as_json:
        logs = rank_logs(stored.folder, attempt, rank)
        click.echo(json.dumps([str(log.path) for log in logs]))
        return
    if stored.plan.config.program == "script":
        raise UsageError(
            "a batch script writes where sbatch lets it; `scontrol show job` names the file as "
            "StdOut, and relight's own words are in the run folder, attempts/*/supervisor.log"
        )
    printer = Printer(_matching(grep), with_rank=follow and rank is None)
    if follow:
        _follow(stored, attempt, rank, printer)
    else:
        printer.show(rank_logs(stored.folder, attempt, rank), to_the_end=True)
    verdict = read_verdict(stored.folder)
    if verdict is not None and verdict.cause == "setup" and rank is None:
        _show_setup(stored.folder, printer)


def _show_setup(folder: RunFolder, printer: Printer) -> None:
    """No rank can tell why ``setup`` failed."""
    if (path := script_output(folder)) is not None:
        printer.print_under(f"==> the batch script, {path} <==", LogTail(path))


def _matching(pattern: str | None) -> Callable[[str], object]:
    if pattern is None:
        return lambda line: True
    try:
        return re.compile(pattern).search
    except re.error as error:
        raise UsageError(f"--grep: {pattern!r} is no regular expression: {error}") from error


@dataclass(slots=True)
class Printer:
    """Prints new lines under the names of their logs; beside them, when logs grow together."""

    matches: Callable[[str], object]
    with_rank: bool
    _tails: dict[Path, LogTail] = field(default_factory=dict)
    _title: str = ""

    def show(self, logs: Iterable[RankLog], *, to_the_end: bool) -> None:
        for log in logs:
            title = f"==> attempt {log.attempt}, generation {log.generation}"
            title += " <==" if self.with_rank else f", rank {log.rank} <=="
            beside = f"{log.rank}: " if self.with_rank else ""
            tail = self._tails.setdefault(log.path, LogTail(log.path))
            self.print_under(title, tail, beside, to_the_end=to_the_end)

    def print_under(
        self, title: str, tail: LogTail, beside: str = "", *, to_the_end: bool = True
    ) -> None:
        for line in tail.new_lines(to_the_end=to_the_end):
            if self.matches(line):
                if title != self._title:
                    click.echo(title)
                    self._title = title
                click.echo(beside + line)


def _follow(run: StoredRun, attempt: str | None, rank: int | None, printer: Printer) -> None:
    over: set[Path] = set()  # of ranks that are no more, read to the end
    while True:
        ended = read_verdict(run.folder) is not None  # before the last words are read
        attempts = any(run.folder.journals.glob("*.jsonl"))
        logs = rank_logs(run.folder, attempt, rank) if attempts else []
        printer.show((log for log in logs if log.path not in over), to_the_end=ended)
        over |= {log.path for log in logs if _life(log) != _life(logs[-1])}
        if ended:
            return
        time.sleep(_TICK_S)


def _life(log: RankLog) -> tuple[str, int]:
    return log.attempt, log.generation
