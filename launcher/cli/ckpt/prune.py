"""``relight ckpt prune``."""

from __future__ import annotations

import json

import click

from relight.counted import counted
from relight.errors import UsageError
from relight.storage.prune import deletable, delete, require_deletable
from relight.storage.retention import Keep

from .place import checkpoint_directory, keep_rule


@click.command("prune")
@click.argument("place", metavar="RUN|DIR")
@click.option("--step", "steps", type=int, multiple=True, help="Delete this one; may be repeated.")
@click.option("--last", type=click.IntRange(min=1), help="Keep the newest N; the run's rule else.")
@click.option("--yes", is_flag=True, help="Delete; without it only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: str, steps: tuple[int, ...], last: int | None, yes: bool, as_json: bool) -> None:
    """Delete checkpoints that the run's rule does not keep, or those of given steps.

    Only committed ones that are older than the newest valid one.
    """
    if steps and last is not None:
        raise UsageError("--step and --last contradict each other: give one of them")
    directory = checkpoint_directory(place)
    going = tuple(sorted(set(steps))) or deletable(directory, _keep(place, last))
    require_deletable(directory, going)
    if yes:
        delete(directory, going)
    if as_json:
        click.echo(json.dumps({"directory": str(directory), "steps": going, "deleted": yes}))
        return
    for step in going:
        click.echo(f"{step:>12}  {'deleted' if yes else 'would go'}")
    if not going:
        click.echo("nothing to delete: the rule keeps all that is there")
        return
    click.echo(counted(len(going), "checkpoint") + ("" if yes else "; deleted with --yes"))


def _keep(place: str, last: int | None) -> Keep:
    if last is not None:
        return Keep(last=last)
    rule = keep_rule(place)
    if rule is None:
        raise UsageError(f"{place} is no run with a rule of its own: give --last or --step")
    return rule
