"""``relight ckpt verify``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from relight.counted import counted
from relight.errors import UsageError
from relight.resilience.exit_codes import EXIT_FAILED
from relight.storage.progress import progress

from .place import checkpoint_directory


@click.command("verify")
@click.argument("place", metavar="RUN|DIR")
@click.option("--step", type=int, help="Only the checkpoint of this step.")
@click.option("--restore", is_flag=True, help="Also load the state of each rank, as a run would.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: str, step: int | None, restore: bool, as_json: bool) -> None:
    """Read every byte of committed checkpoints again; exit 1 when anything is damaged."""
    from relight.storage.verify import size_bytes, verify

    directory = checkpoint_directory(place)
    total = size_bytes(directory, step) * (2 if restore else 1)
    with progress("verify", total) as advance:
        report = verify(directory, step, restore=restore, advance=advance)
    if step is not None and not report.steps:
        raise UsageError(f"step {step} is not committed in {directory}: nothing was read")
    if not report.steps and report.sound:
        raise UsageError(f"{directory} holds no committed checkpoint: nothing was read")
    if as_json:
        click.echo(json.dumps({**asdict(report), "sound": report.sound}))
    else:
        for finding in report.findings:
            block = "" if finding.block is None else f", block {finding.block}"
            where = f"step {finding.step}: {finding.file}: {finding.array}{block}"
            click.echo(f"{where}: {finding.reason}")
        read = counted(len(report.steps), "checkpoint")
        loaded = " and restored" if restore else ""
        click.echo(f"{read} read{loaded}, {counted(len(report.findings), 'place')} damaged")
    click.get_current_context().exit(0 if report.sound else EXIT_FAILED)
