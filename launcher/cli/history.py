"""``relight history``."""

from __future__ import annotations

import json
from datetime import datetime

import click

from relight.counted import counted
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.standing import read_verdict

from ..report import History, history
from ..runs import find_one_run
from ..watch import untold_end
from .run_argument import complete_run


@click.command("history")
@click.argument("run", shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, as_json: bool) -> None:
    """Tell what happened to RUN: attempts, generations, causes, excluded nodes, checkpoints.

    Many checkpoints in a row are told in a line; JSON has each.
    """
    stored = find_one_run(run)
    end = untold_end(stored.folder, read_verdict(stored.folder))
    told = history(stored.run_id, read_journals(stored.folder.journals), end)
    click.echo(json.dumps(told.to_json()) if as_json else _text(told))


def _text(told: History) -> str:
    lines = [f"run {told.run_id}: {counted(len(told.attempts), 'attempt')}"]
    if not told.folded:
        lines.append(f"it has not started: `relight status {told.run_id}` says what it waits for")
    attempt = None
    for happening in told.folded:
        if happening.attempt != attempt:
            attempt = happening.attempt
            lines.append(f"\nattempt {attempt}" if attempt else "\nwhile no attempt ran")
        time = datetime.fromtimestamp(happening.time)
        lines.append(f"  {time:%Y-%m-%d %H:%M:%S}  {happening.text}")
    if told.excluded:
        lines.append("\nexcluded nodes")
        lines += [f"  {one.node}: {one.cause}: {one.evidence}" for one in told.excluded]
    return "\n".join(lines)
