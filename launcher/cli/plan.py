"""``relight plan``."""

from __future__ import annotations

from pathlib import Path

import click

from ..asked import read_asked
from .planning import planned
from .spec_arguments import with_spec


@click.command("plan")
@with_spec
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(path: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Print the script that SPEC would be sent as. Sends and writes nothing."""
    asked = read_asked(path, sets)
    launch = planned(asked, sends=False).launch
    if as_json:
        import json

        click.echo(json.dumps({"run": launch.config.to_json(), "script": launch.script}))
    else:
        click.echo(launch.script, nl=False)
