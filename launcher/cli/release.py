"""``relight release``."""

from __future__ import annotations

import click

from ..runs import find_run
from ..shared_answer import forget_answer
from ..steering import release
from .run_argument import complete_run


@click.command("release")
@click.argument("run", shell_complete=complete_run)
def command(run: str) -> None:
    """Let RUN, which is held, start again."""
    stored = find_run(run)
    jobs = release(stored)
    forget_answer()
    if jobs:
        click.echo(f"run {stored.run_id} may start: job {', '.join(jobs)}")
    else:
        click.echo(f"no job of run {stored.run_id} waits; nothing holds it now")
