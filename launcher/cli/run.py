"""``relight run``."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relight.counted import counted
from relight.errors import UsageError
from relight.resilience.config import RunConfig
from relight.resilience.exit_codes import EXIT_DONE, EXIT_RESTART
from relight.resilience.supervise.journal import journals
from relight.resilience.supervise.standing import read_verdict

from ..clusters.local_front import Front, allocation_of, is_alive
from ..clusters.slurm.held import HeldAllocation, held_allocation
from ..home import from_home
from ..no_verdict import no_verdict
from ..programs_here import check_command, check_container
from ..rank_logs import rank_logs
from ..run_creation import new_run_folder
from ..runs import StoredRun, find_run
from ..shared_directory import directory_warnings
from ..stored_plan import read_plan
from ..watch import flushed, json_line, nothing_done_since, timed_sentence, untold_end, watcher
from .spec_arguments import with_sets

if TYPE_CHECKING:
    from ..asked import Asked


@click.command("run")
@click.argument("spec", type=click.Path(readable=False, path_type=Path), required=False)
@with_sets
@click.option("--resume", metavar="RUN", help="Go on with a local run instead.")
@click.option("--debug", is_flag=True, help="Run one rank in this terminal, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print what happens as JSON lines.")
def command(
    spec: Path | None, sets: tuple[str, ...], resume: str | None, debug: bool, as_json: bool
) -> None:
    """Run the job that SPEC describes here, until it is done.

    Inside an allocation (salloc) its nodes are used; elsewhere nodes are pretend nodes on this
    machine. Ctrl-C cancels the run; a SIGTERM, or a SIGHUP as its terminal is closed, stops it;
    --resume goes on from all.
    """
    if (spec is None) == (resume is None):
        raise UsageError("give either a spec file or --resume RUN")
    if debug:
        if spec is None:
            raise UsageError("--debug runs a spec from its start: it goes on with nothing")
        click.get_current_context().exit(_debug(spec, sets))
    held = held_allocation(os.environ)
    run = new_local_run(spec, sets, held) if spec is not None else _old_run(resume or "", held)
    say = flushed(sys.stderr)  # words to nobody, or to a full disk, end no run
    for warning in directory_warnings(run.plan.config):
        say(f"relight: warning: {warning}\n")
    if not as_json:
        say(f"run {run.run_id} in {run.folder.root}{_where(held)}\n")
    watching = watcher(run.folder, as_json=as_json)
    front = Front(run.folder, run.plan.config, watching, held, resumed=resume is not None)
    code = front.run()
    end = untold_end(run.folder, read_verdict(run.folder))
    if as_json and end is not None:
        flushed(sys.stdout)(json_line(end) + "\n")
    if not as_json:
        told = "" if end is None else f"{timed_sentence(end)}\n"
        say(f"{told}{_last_word(run, front.told, code)}\n")
    click.get_current_context().exit(code)


def _debug(spec: Path, sets: tuple[str, ...]) -> int:
    from ..asked import read_asked
    from ..debugging import run_one_rank
    from ..plan import run_config

    asked = _one_point(read_asked(spec, sets), spec)
    asked_here = replace(asked.submitter, tree=None)  # of the work tree itself, not of a copy
    config = run_config(asked.spec, asked_here)
    check_place(replace(config, mpi=None), None)  # a single rank needs nobody to connect it
    return run_one_rank(asked.spec, config)


def _where(held: HeldAllocation | None) -> str:
    return "" if held is None else f", on nodes of job {held.job_id}"


def check_place(config: RunConfig, held: HeldAllocation | None) -> None:
    """Whether this machine, or what it holds, is enough for a run.

    Raises:
        UsageError: it is not.
    """
    if held is not None and config.components:
        raise UsageError(
            f"resources.components: the allocation {held.job_id} is used as one of nodes of one "
            "kind; `relight submit` gets a heterogeneous job of its own, and `relight run` outside "
            "of an allocation runs all components on this machine"
        )
    needed = config.min_nodes or config.nodes_wanted
    if held is not None and len(held.nodes) < needed:
        raise UsageError(
            f"the allocation {held.job_id} has {counted(len(held.nodes), 'node')}, and the job "
            f"needs {needed}; --set resources.nodes=N asks for fewer, "
            "`relight submit` gets an allocation of its own"
        )
    if held is not None:
        _check_cpus(config, held)
    if held is None and config.container is not None and config.container.runtime == "pyxis":
        raise UsageError(
            "container.runtime: pyxis is a part of Slurm's srun; `relight submit` runs it there, "
            "`relight run` inside of salloc, and apptainer runs anywhere"
        )
    if held is None and config.mpi is not None and config.world_size > 1:
        raise UsageError(
            f"mpi: {config.mpi} needs Slurm's srun to connect {config.world_size} ranks; "
            "`relight submit` runs it there, and `relight run` inside of salloc"
        )


def _check_cpus(config: RunConfig, held: HeldAllocation) -> None:
    """Of the nodes that the ranks begin on: a step that asks for more never starts."""
    need = config.tasks_per_node * config.cpus_per_task
    for node, cpus in list(zip(held.nodes, held.cpus, strict=False))[: config.nodes]:
        if cpus < need:
            raise UsageError(
                f"the allocation {held.job_id} has {cpus} of the {need} CPUs on {node} that the "
                f"job needs (tasks_per_node {config.tasks_per_node}, cpus_per_task "
                f"{config.cpus_per_task}); `salloc --ntasks-per-node={config.tasks_per_node} "
                f"--cpus-per-task={config.cpus_per_task}` gets as many, "
                "--set resources.tasks_per_node=N asks for fewer"
            )


def new_local_run(
    spec: Path, sets: tuple[str, ...], held: HeldAllocation | None = None, *, apart: bool = False
) -> StoredRun:
    """A run that can begin; ``apart``: under a name and in folders of its own, whatever
    the spec says.

    Raises:
        UsageError: it cannot run on this machine.
    """
    from ..asked import read_asked
    from ..plan import plan

    asked = _one_point(read_asked(spec, sets), spec)
    asked = _apart(asked) if apart else asked
    launch = plan(asked.spec, asked.submitter, "local")
    if asked.spec.after:
        raise UsageError(f"{spec}: after: runs without Slurm have no queue to wait in")
    check_place(launch.config, held)
    if held is None and not asked.spec.setup:  # which may bring what is not here
        check_container(launch.config)
        if asked.spec.container is None:
            place = asked.submitter.working_dir / from_home(asked.spec.working_dir or "")
            check_command(launch.config, place)
    with new_run_folder(launch, asked.text, asked.submitter.tree) as folder:
        return StoredRun(folder, read_plan(folder.root))


def _one_point(asked: Asked, path: Path) -> Asked:
    from ..sweep_plan import one_point

    try:
        return replace(asked, spec=one_point(asked.spec))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _apart(asked: Asked) -> Asked:
    """What a trial does is of no interest to those who are told of runs, or to an archive."""
    checkpoint = asked.spec.checkpoint.model_copy(update={"directory": None, "archive": None})
    own = {"run_dir": None, "checkpoint": checkpoint, "notify": None}
    spec = asked.spec.model_copy(update=own)
    run_id = f"verify-{asked.submitter.run_id}"
    return replace(asked, spec=spec, submitter=replace(asked.submitter, run_id=run_id))


def _old_run(name: str, held: HeldAllocation | None) -> StoredRun:
    """A run that may go on: not a Slurm job, not alive, not complete."""
    run = find_run(name)
    if run.plan.cluster != "local":
        raise UsageError(f"{run.run_id} is a Slurm job: only local runs are resumed here")
    if is_alive(run.folder):
        raise UsageError(
            f"{run.run_id} is alive: there is nothing to resume. `relight status {run.run_id}` "
            "shows where it stands, `relight hold` stops it so that --resume goes on, "
            "`relight restart` lets it start again"
        )
    verdict = read_verdict(run.folder)
    if verdict is not None and verdict.state == "COMPLETED":
        raise UsageError(
            f"{run.run_id} is complete, and nothing is left of it to do; a new run that is given "
            f"checkpoint.directory {run.plan.config.checkpoint.directory} goes on from its last "
            "checkpoint, where its program has more to do"
        )
    if held is None and (job_id := allocation_of(run.folder)) is not None:
        raise UsageError(
            f"{run.run_id} ran on the nodes of job {job_id}, and this shell is in no allocation: "
            "`salloc` one, and resume it there"
        )
    check_place(run.plan.config, held)
    journals(run.folder.journals)  # a run that cannot be read keeps what is known of its end
    run.folder.cancelled.unlink(missing_ok=True)
    run.folder.verdict.unlink(missing_ok=True)
    return run


def _last_word(run: StoredRun, told: signal.Signals | None, code: int) -> str:
    if not run.folder.plan.exists():
        return f"the run folder {run.folder.root} was removed: there is nothing to go on from"
    go_on = f"`relight run --resume {run.run_id}` goes on from the newest checkpoint, if any"
    if told is signal.SIGINT:
        return f"cancelled: nothing starts it again by itself; by hand, {go_on}"
    if code == EXIT_RESTART:
        return f"stopped; {go_on}"
    verdict = read_verdict(run.folder)
    if verdict is None:
        return f"{no_verdict(run.folder, code)}; {go_on}"
    if code == EXIT_DONE and (step := nothing_done_since(run.folder)) is not None:
        return (
            f"{verdict.state}, and no step was done: the checkpoint of step {step} in "
            f"{run.plan.config.checkpoint.directory} was the end of the job already; another "
            "checkpoint.directory begins it anew"
        )
    again = "" if code == EXIT_DONE else f"; when that is mended, {go_on}"
    has_output = rank_logs(run.folder) or verdict.cause == "setup"
    verb, what = ("logs", "has the output") if has_output else ("history", "says why")
    return f"{verdict.state}; `relight {verb} {run.run_id}` {what}{again}"
