"""``relight cancel``."""

from __future__ import annotations

import json

import click

from relight.resilience.exit_codes import EXIT_FAILED

from ..cancellation import cancel
from ..runs import find_run
from ..shared_answer import forget_answer
from .run_argument import complete_run


@click.command("cancel")
@click.argument("run", shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, as_json: bool) -> None:
    """End RUN: nothing of it stays in the queue, and nothing of it starts again by itself."""
    stored = find_run(run)
    done = cancel(stored)
    forget_answer()
    if as_json:
        answer = {"run_id": stored.run_id, "jobs": done.jobs, "ended": done.ended}
        click.echo(json.dumps({**answer, "before": done.before}))
    elif done.ended and done.before is not None:
        in_queue = done.jobs if stored.plan.cluster == "slurm" else ()
        left = f"; what was left of it is cancelled: {', '.join(in_queue)}" if in_queue else ""
        click.echo(f"run {stored.run_id} had ended already, as {done.before}{left}")
    elif done.ended:
        by_hand = f"; `relight run --resume {stored.run_id}` would go on from its newest checkpoint"
        local = stored.plan.cluster == "local"
        click.echo(f"run {stored.run_id} is cancelled and has ended{by_hand if local else ''}")
    else:
        click.echo(f"run {stored.run_id} is cancelled but has not ended yet", err=True)
    click.get_current_context().exit(0 if done.ended else EXIT_FAILED)
