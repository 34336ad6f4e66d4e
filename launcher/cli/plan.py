"""``relight plan``."""

from __future__ import annotations

from pathlib import Path

import click

from ..asked import read_asked
from ..programs_here import command_warnings
from ..run_creation import refuse_taken
from .planning import planned
from .spec_arguments import with_spec


@click.command("plan")
@with_spec
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(path: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Print the script that SPEC would be sent as. Sends and writes nothing."""
    asked = read_asked(path, sets)
    launch = planned(asked, sends=False).launch
    refuse_taken(launch.folder)
    for warning in command_warnings(asked.spec, launch.config, asked.submitter.working_dir):
        click.echo(f"relight: warning: {warning}", err=True)
    if as_json:
        import json

        click.echo(json.dumps({"run": launch.config.to_json(), "script": launch.script}))
    else:
        click.echo(launch.script, nl=False)
