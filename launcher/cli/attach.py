"""``relight attach``."""

from __future__ import annotations

import os

import click

from ..inside import become, chosen, look_inside
from ..runs import find_run
from .run_argument import complete_run


@click.command("attach")
@click.argument("run", shell_complete=complete_run)
@click.option("--node", help="On this node; on that of rank 0 by default.")
@click.option("--rank", type=int, help="On the node of this rank.")
def command(run: str, node: str | None, rank: int | None) -> None:
    """Open a shell in the working directory of RUN, on one of its nodes."""
    stored = find_run(run)
    place = look_inside(stored)
    one = chosen(stored, place, node, rank)[:1]
    become(place, one, (os.environ.get("SHELL") or "/bin/sh", "-i"), terminal=True)
