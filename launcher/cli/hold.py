"""``relight hold``."""

from __future__ import annotations

import click

from ..runs import find_run
from ..shared_answer import forget_answer
from ..steering import hold
from .run_argument import complete_run


@click.command("hold")
@click.argument("run", shell_complete=complete_run)
def command(run: str) -> None:
    """Let RUN save, give its nodes back, and wait in the queue until it is released."""
    stored = find_run(run)
    held = hold(stored)
    forget_answer()
    if held.waits:
        local = stored.plan.cluster == "local"
        verb = f"run --resume {stored.run_id}" if local else f"release {stored.run_id}"
        click.echo(f"run {stored.run_id} is held; `relight {verb}` lets it go on")
    else:
        click.echo(f"run {stored.run_id} is on its way; `relight status` shows when it is held")
