"""``relight run``."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import click

from relight.errors import UsageError
from relight.resilience.exit_codes import EXIT_RESTART
from relight.resilience.supervise.standing import read_verdict

from ..clusters.local_front import Front, is_alive
from ..run_creation import new_run_folder
from ..runs import StoredRun, find_run
from ..stored_plan import read_plan
from ..watch import watcher
from .spec_arguments import with_sets


@click.command("run")
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@with_sets
@click.option("--resume", metavar="RUN", help="Go on with a local run instead.")
@click.option("--json", "as_json", is_flag=True, help="Print what happens as JSON lines.")
def command(spec: Path | None, sets: tuple[str, ...], resume: str | None, as_json: bool) -> None:
    """Run the job that SPEC describes on this machine, without Slurm, until it is done.

    Nodes are pretend nodes. Ctrl-C cancels the run; a SIGTERM stops it so that --resume goes on.
    """
    if (spec is None) == (resume is None):
        raise UsageError("give either a spec file or --resume RUN")
    run = new_local_run(spec, sets) if spec is not None else _old_run(resume or "")
    if not as_json:
        click.echo(f"run {run.run_id} in {run.folder.root}", err=True)
    watching = watcher(run.folder, as_json=as_json)
    front = Front(run.folder, run.plan.config, watching, resumed=resume is not None)
    code = front.run()
    if not as_json:
        click.echo(_last_word(run, front.told, code), err=True)
    click.get_current_context().exit(code)


def new_local_run(spec: Path, sets: tuple[str, ...], *, apart: bool = False) -> StoredRun:
    """A run that can begin; ``apart``: with checkpoints in its own folder, whatever the spec says.

    Raises:
        UsageError: it cannot run on this machine.
    """
    from ..asked import read_asked
    from ..plan import plan

    asked = read_asked(spec, sets)
    launch = plan(asked.spec, asked.submitter, "local")
    if asked.spec.sweep is not None:
        raise UsageError(f"{spec}: sweep: runs without Slurm have no arrays; --set gives one point")
    if asked.spec.after:
        raise UsageError(f"{spec}: after: runs without Slurm have no queue to wait in")
    if launch.config.mpi is not None and launch.config.world_size > 1:
        raise UsageError(
            f"{spec}: mpi: {launch.config.mpi} needs Slurm's srun to connect "
            f"{launch.config.world_size} ranks; `relight submit` runs it there"
        )
    if apart:
        directory = launch.config.run_dir / "checkpoints"
        checkpoint = replace(launch.config.checkpoint, directory=directory)
        launch = replace(launch, config=replace(launch.config, checkpoint=checkpoint))
    with new_run_folder(launch, asked.text, asked.submitter.tree) as folder:
        return StoredRun(folder, read_plan(folder.root))


def _old_run(name: str) -> StoredRun:
    """A run that may go on: not a Slurm job, not alive, not complete."""
    run = find_run(name)
    if run.plan.cluster != "local":
        raise UsageError(f"{run.run_id} is a Slurm job: only local runs are resumed here")
    if is_alive(run.folder):
        raise UsageError(f"{run.run_id} is alive")
    verdict = read_verdict(run.folder)
    if verdict is not None and verdict.state == "COMPLETED":
        raise UsageError(f"{run.run_id} is complete")
    run.folder.cancelled.unlink(missing_ok=True)
    run.folder.verdict.unlink(missing_ok=True)
    return run


def _last_word(run: StoredRun, told: signal.Signals | None, code: int) -> str:
    if not run.folder.plan.exists():
        return f"the run folder {run.folder.root} was removed: there is nothing to go on from"
    go_on = f"`relight run --resume {run.run_id}` goes on from the newest checkpoint"
    if told is signal.SIGINT:
        return f"cancelled; {go_on}"
    if code == EXIT_RESTART:
        return f"stopped; {go_on}"
    verdict = read_verdict(run.folder)
    if verdict is None:
        return f"the supervisor ended with {code} and left no verdict; {go_on}"
    tail = "".join(f"\n  | {line}" for line in verdict.tail)
    return f"{verdict.state}; `relight logs {run.run_id}` has the output{tail}"
