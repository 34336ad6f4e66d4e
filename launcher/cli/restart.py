"""``relight restart``."""

from __future__ import annotations

import click

from ..clusters.slurm.hostlist import expand_nodes
from ..runs import find_run
from ..shared_answer import forget_answer
from ..steering import restart
from .run_argument import complete_run


@click.command("restart")
@click.argument("run", shell_complete=complete_run)
@click.option(
    "--exclude", multiple=True, metavar="NODES", help="Leave these nodes, such as n1,n[4-6]."
)
def command(run: str, exclude: tuple[str, ...]) -> None:
    """Let RUN save and start again now: in place, or elsewhere when nodes have to be left."""
    try:
        nodes = [node for text in exclude for node in expand_nodes(text)]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--exclude") from error
    stored = find_run(run)
    restart(stored, nodes)
    forget_answer()
    click.echo(
        f"run {stored.run_id} saves and starts again, unless it ends first; `relight history` tells"
    )
