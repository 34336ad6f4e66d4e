"""``relight plan``."""

from __future__ import annotations

from pathlib import Path

import click

from ..avoidance import avoid_known_bad
from ..plan import plan
from ..run_creation import submitter
from ..spec_file import load_spec


@click.command("plan")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(spec: Path, as_json: bool) -> None:
    """Print the script that SPEC would be sent as. Sends and writes nothing."""
    asked, _text = load_spec(spec)
    launch = plan(avoid_known_bad(asked).spec, submitter(asked.name), "slurm")
    if as_json:
        import json

        click.echo(json.dumps({"run": launch.config.to_json(), "script": launch.script}))
    else:
        click.echo(launch.script, nl=False)
