"""``relight ckpt ls``."""

from __future__ import annotations

import json

import click

from relight.storage.choose import candidates

from .place import checkpoint_directory


@click.command("ls")
@click.argument("place", metavar="RUN|DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: str, as_json: bool) -> None:
    """List checkpoints, newest first; valid means complete, by manifest and sizes."""
    directory = checkpoint_directory(place)
    found = candidates(directory)
    if as_json:
        rows = [
            {"step": one.step, "condition": one.condition, "reason": one.reason} for one in found
        ]
        click.echo(json.dumps({"directory": str(directory), "checkpoints": rows}))
        return
    for one in found:
        reason = f": {one.reason}" if one.reason else ""
        click.echo(f"{one.step:>12}  {one.condition}{reason}")
    if not found:
        click.echo(f"{directory} holds no checkpoints", err=True)
    elif any(one.condition == "valid" for one in found):
        click.echo(f"sizes are compared; `relight ckpt verify {place}` reads every byte", err=True)
