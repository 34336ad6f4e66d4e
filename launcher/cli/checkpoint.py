"""``relight checkpoint``."""

from __future__ import annotations

import json

import click

from ..runs import find_run
from ..steering import save_now
from .run_argument import complete_run


@click.command("checkpoint")
@click.argument("run", shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, as_json: bool) -> None:
    """Let RUN save its state now and go on; returns when the checkpoint is valid."""
    stored = find_run(run)
    step = save_now(stored)
    if as_json:
        click.echo(json.dumps({"run_id": stored.run_id, "step": step}))
    elif step is not None:
        click.echo(f"step {step} is saved")
    elif stored.plan.config.checkpoint.done is not None:
        click.echo("the program has saved")
    else:
        click.echo(f"the program was sent {stored.plan.config.checkpoint.signal}")
