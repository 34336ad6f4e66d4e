"""``relight status``."""

from __future__ import annotations

import json

import click

from ..presence import read_facts
from ..report import Status, status
from ..runs import all_runs, find_run


@click.command("status")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, as_json: bool) -> None:
    """Say where RUN stands (a run id, its beginning, a job id or a path), or list all runs."""
    if run is None:
        found = [status(read_facts(stored)) for stored in all_runs()]
        if as_json:
            click.echo(json.dumps([one.to_json() for one in found]))
        else:
            _print_table(found)
        return
    one = status(read_facts(find_run(run)))
    click.echo(json.dumps(one.to_json()) if as_json else _text(one))


def _text(one: Status) -> str:
    fields = {
        "run": one.run_id,
        "state": one.state.value + (f" ({one.reason})" if one.reason else ""),
        "job": one.job_id,
        "attempt": one.attempt,
        "generation": one.generation,
        "step": one.step,
        "last checkpoint": one.last_checkpoint,
        "nodes": ", ".join(one.nodes) or None,
        "excluded": ", ".join(one.excluded) or None,
        "folder": one.run_dir,
    }
    return "\n".join(f"{key:16}{value}" for key, value in fields.items() if value is not None)


def _print_table(found: list[Status]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for heading in ("RUN", "STATE", "JOB", "STEP", "CHECKPOINT", "NODES"):
        table.add_column(heading)
    for one in found:
        cells = (one.run_id, one.state, one.job_id, one.step, one.last_checkpoint, len(one.nodes))
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console().print(table)
