"""``relight ckpt``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from relight.errors import UsageError
from relight.resilience.messages import EXIT_FAILED
from relight.storage.choose import candidates

from ..runs import find_run


@click.group("ckpt")
def command() -> None:
    """Look at checkpoints of a run, or in a directory."""


@command.command("ls")
@click.argument("place", metavar="RUN|DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_checkpoints(place: str, as_json: bool) -> None:
    """List checkpoints, newest first."""
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


@command.command("verify")
@click.argument("place", metavar="RUN|DIR")
@click.option("--step", type=int, help="Only the checkpoint of this step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_checkpoints(place: str, step: int | None, as_json: bool) -> None:
    """Read every byte of committed checkpoints again; exit 1 when anything is damaged."""
    from relight.storage.verify import verify

    report = verify(checkpoint_directory(place), step)
    if as_json:
        click.echo(json.dumps({**asdict(report), "sound": report.sound}))
    else:
        for finding in report.findings:
            block = "" if finding.block is None else f", block {finding.block}"
            where = f"step {finding.step}: {finding.file}: {finding.array}{block}"
            click.echo(f"{where}: {finding.reason}")
        click.echo(f"{len(report.steps)} checkpoints read, {len(report.findings)} places damaged")
    click.get_current_context().exit(0 if report.sound else EXIT_FAILED)


def checkpoint_directory(place: str) -> Path:
    """The checkpoints of a run, or a directory that holds some itself.

    Raises:
        UsageError: it is neither.
    """
    path = Path(place)
    if path.is_dir() and not (path / "plan.json").exists():
        return path
    directory = find_run(place).plan.config.checkpoint.directory
    if not directory.is_dir():
        raise UsageError(f"{directory} is not there: the run has saved nothing yet")
    return directory
