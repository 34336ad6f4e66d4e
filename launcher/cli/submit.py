"""``relight submit``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from ..asked import read_asked
from ..programs_here import command_warnings
from ..run_creation import new_run_folder, note_jobs, write_sweep
from .planning import planned
from .spec_arguments import with_spec
from .told_to_end import interrupted_by_ends


@click.command("submit")
@with_spec
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Submit the job that SPEC describes to Slurm."""
    from ..clusters.slurm.submit import submit, submit_arrays
    from ..shared_directory import directory_warnings, waits_for_jobs
    from ..site import warnings

    asked = read_asked(path, sets)
    what = planned(asked)
    launch = what.launch
    with (
        interrupted_by_ends(),
        new_run_folder(launch, asked.text, asked.submitter.tree) as folder,
    ):
        if what.sweep is None:
            job_ids = [submit(launch)]
            note_jobs(folder, job_ids)
        else:
            write_sweep(folder, what.sweep.points, what.sweep.task)
            job_ids = submit_arrays(what.sweep.arrays, partial(note_jobs, folder))
    for note in what.notes:
        click.echo(f"relight: {note}", err=True)
    run_id = launch.config.run_id
    if as_json:
        answer = {"run_id": run_id, "job_id": job_ids[0], "run_dir": str(folder.root)}
        tasks = {} if what.sweep is None else {"job_ids": job_ids, "tasks": len(what.sweep.points)}
        click.echo(json.dumps({**answer, **tasks}))
    elif what.sweep is None:
        click.echo(f"run {run_id} is job {job_ids[0]}; `relight status {run_id}` follows it")
    else:
        count = len(what.sweep.points)
        click.echo(
            f"runs {run_id}_0 to {run_id}_{count - 1} are tasks of job {', '.join(job_ids)}; "
            f"`relight status {run_id}` follows them"
        )
    if what.waiting is not None:
        for job_id in job_ids:
            what.waiting.register(job_id)
    # Last, for they take their time, and nobody shall send a job twice.
    waits = what.waiting is not None or waits_for_jobs(asked.spec.sbatch)
    shared = [] if waits else directory_warnings(launch.config)
    shared += command_warnings(asked.spec, launch.config, asked.submitter.working_dir)
    for warning in (*shared, *warnings(asked.spec.resources, launch.config)):
        click.echo(f"relight: warning: {warning}", err=True)
