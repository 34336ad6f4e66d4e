"""``relight schema``."""

from __future__ import annotations

import json

import click

from ..spec_schema import described_schema


@click.command("schema")
@click.option("--json", "as_json", is_flag=True, help="The same: the schema is JSON anyway.")
def command(as_json: bool) -> None:
    """Print the JSON Schema of job.yaml, for editors."""
    click.echo(json.dumps(described_schema(), indent=None if as_json else 2))
