"""``relight submit``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..asked import read_asked
from ..run_creation import new_run_folder
from ..runs import submitted_job
from .planning import planned
from .spec_arguments import with_spec


@click.command("submit")
@with_spec
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Submit the job that SPEC describes to Slurm."""
    from ..clusters.slurm.submit import submit
    from ..site import warnings

    asked = read_asked(path, sets)
    what = planned(asked)
    launch = what.launch
    with new_run_folder(launch, asked.text, asked.submitter.tree) as folder:
        job_id = submit(launch)
        submitted_job(folder).write_text(job_id + "\n")
    if what.waiting is not None:
        what.waiting.register(job_id)
    for note in what.notes:
        click.echo(f"relight: {note}", err=True)
    for warning in warnings(asked.spec):
        click.echo(f"relight: warning: {warning}", err=True)
    run_id = launch.config.run_id
    if as_json:
        answer = {"run_id": run_id, "job_id": job_id, "run_dir": str(folder.root)}
        click.echo(json.dumps(answer))
    else:
        click.echo(f"run {run_id} is job {job_id}; `relight status {run_id}` follows it")
