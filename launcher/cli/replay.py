"""``relight replay``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

import click

from relight.counted import counted
from relight.resilience.decide.replay import Difference, Order, Repetition, repeat
from relight.resilience.exit_codes import EXIT_FAILED
from relight.resilience.supervise.begin import policy_of
from relight.resilience.supervise.journal import read_journals
from relight.resilience.supervise.rules_file import stored_rules

from ..runs import find_one_run
from .run_argument import complete_run


@click.command("replay")
@click.argument("run", shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, as_json: bool) -> None:
    """Decide again all that RUN has decided; exit 1 at the first difference."""
    stored = find_one_run(run)
    policy = policy_of(stored.plan.config, stored_rules(stored.folder))
    done = repeat(read_journals(stored.folder.journals), policy)
    click.echo(json.dumps(asdict(done)) if as_json else _text(done))
    click.get_current_context().exit(0 if done.difference is None else EXIT_FAILED)


def _text(done: Repetition) -> str:
    seen = f"{counted(done.events, 'event')}, {counted(done.actions, 'action')}"
    if done.difference is None:
        return f"{seen}: every decision is the same again"
    return f"{seen} are the same; then\n{_told(done.difference)}"


def _told(difference: Difference) -> str:
    time = datetime.fromtimestamp(difference.time)
    return "\n".join(
        (
            f"  attempt {difference.attempt}, {time:%Y-%m-%d %H:%M:%S}, after {difference.event}",
            f"  journal: {_order(difference.journaled)}",
            f"  machine: {_order(difference.recomputed)}",
        )
    )


def _order(order: Order | None) -> str:
    if order is None:
        return "nothing"
    fields = ", ".join(f"{key}={value}" for key, value in order.data.items())
    return f"{order.name}({fields})"
