"""``relight logs``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from relight.resilience.run_folder import RunFolder

from ..runs import find_run


@click.command("logs")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print the logs' names instead, as JSON.")
def command(run: str, as_json: bool) -> None:
    """Print what every rank of every attempt of RUN has written."""
    folder = find_run(run).folder
    logs = list(_rank_logs(folder))
    if as_json:
        click.echo(json.dumps([str(path) for path in logs]))
        return
    for path in logs:
        attempt, generation = path.parts[-4], path.parts[-2]
        click.echo(f"==> attempt {attempt}, generation {generation}, rank {path.stem} <==")
        click.echo(path.read_text(errors="replace"), nl=False)


def _rank_logs(folder: RunFolder) -> Iterator[Path]:
    """The ranks' logs: oldest attempt first, then by generation and rank."""
    for journal in sorted(folder.journals.glob("*.jsonl"), key=lambda path: path.stat().st_ctime):
        logs = [
            path
            for path in folder.logs(journal.stem).glob("*/*.log")
            if path.stem.isdecimal() and path.parent.name.isdecimal()
        ]
        yield from sorted(logs, key=lambda path: (int(path.parent.name), int(path.stem)))
