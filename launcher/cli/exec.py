"""``relight exec``."""

from __future__ import annotations

import click

from ..inside import become, chosen, look_inside
from ..runs import find_run
from .run_argument import complete_run


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("run", shell_complete=complete_run)
@click.option("--node", help="Only on this node; on all by default.")
@click.option("--rank", type=int, help="Only on the node of this rank.")
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(run: str, node: str | None, rank: int | None, words: tuple[str, ...]) -> None:
    """Run COMMAND once on each node that RUN holds, beside its ranks.

    Lines begin with the number of their node, from 0: that of Slurm's task, and of no rank.
    """
    stored = find_run(run)
    place = look_inside(stored)
    become(place, chosen(stored, place, node, rank), words, terminal=False)
