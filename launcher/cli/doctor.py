"""``relight doctor``."""

from __future__ import annotations

import json

import click

from relight.errors import UsageError

from ..clusters.slurm.client import SlurmClient
from ..doctor import as_text, examine
from ..site import site_of
from ..units import parse_duration


@click.command("doctor")
@click.option("--save", metavar="DURATION", help="How long a save of your state takes, as in 90s.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(save: str | None, as_json: bool) -> None:
    """Tell what this site's Slurm allows, and what follows for you."""
    save_s = None if save is None else _seconds(save)
    client = SlurmClient(pauses_s=(0.5, 1.0))
    config = client.config()
    findings = examine(config, site_of(config, client.partitions()), save_s)
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings]))
    else:
        click.echo(as_text(findings))


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--save: {error}") from error
