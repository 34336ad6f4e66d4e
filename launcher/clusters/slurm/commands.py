"""The arguments of every Slurm command that we run (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relight.resilience.supervise.cluster import StepRequest

from .size import Size

Argv = tuple[str, ...]


def show_job(job_id: str) -> Argv:
    return ("scontrol", "--oneliner", "show", "job", job_id)


def accounted_state(job_id: str) -> Argv:
    return (
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        f"--jobs={job_id}",
        "-o",
        "State",
    )


def show_config() -> Argv:
    return ("scontrol", "show", "config")


def show_partitions() -> Argv:
    return ("scontrol", "--oneliner", "show", "partition")


def queue_by_name(name: str, user: str) -> Argv:
    """The user's jobs with one name; no field holds text that a user chose."""
    return ("squeue", "--noheader", f"--name={name}", f"--user={user}", "--format=%i|%T|%r")


def queue_by_id(job_id: str) -> Argv:
    """One job, or all tasks of an array."""
    return ("squeue", "--noheader", f"--jobs={job_id}", "--format=%i|%T|%r")


def queue_of_user(user: str) -> Argv:
    """The user's jobs, each with its expected start and the path of the script that was sent."""
    return ("squeue", "--noheader", f"--user={user}", "--format=%i|%T|%r|%S|%o")


def limits_of_user(user: str, cluster: str) -> Argv:
    """What each association of a user allows, who is found by name only, not by number."""
    return (
        *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
        *(f"user={user}", f"cluster={cluster}", "format=Account,Partition,MaxJobs,MaxSubmitJobs"),
    )


def nodes_of_partition(partition: str) -> Argv:
    return ("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N|%T")


def node_states(nodes: Sequence[str]) -> Argv:
    return ("sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T")


def show_nodes(nodes: Sequence[str]) -> Argv:
    return ("scontrol", "--oneliner", "show", "node", ",".join(nodes))


def successor(
    script: Path, after: str, exclude: Sequence[str], nodes: str | None, *, held: bool
) -> Argv:
    """A job that starts when ``after`` has ended, however it ended; a held one not before that it
    is released. ``nodes`` is a number or a range; None for what the script asks for."""
    options = [f"--dependency=afterany:{after}", *(["--hold"] if held else [])]
    if nodes is not None:
        options.append(f"--nodes={nodes}")
    if exclude:
        options.append(f"--exclude={','.join(exclude)}")
    return ("sbatch", "--parsable", *options, str(script))


def requeue(job_id: str, *, held: bool) -> Argv:
    return ("scontrol", "requeuehold" if held else "requeue", job_id)


def hold(job_ids: Sequence[str]) -> Argv:
    return ("scontrol", "hold", ",".join(job_ids))


def release(job_ids: Sequence[str]) -> Argv:
    return ("scontrol", "release", ",".join(job_ids))


def resize(job_id: str, size: Size) -> Argv:
    """For a job that waits: on fewer nodes it fits with fewer CPUs only (22.05)."""
    told = (f"NumNodes={size.nodes}", f"NumCPUs={size.cpus}")
    return ("scontrol", "update", f"JobId={job_id}", *told)


def update(job_id: str, field: str, value: str) -> Argv:
    return ("scontrol", "update", f"JobId={job_id}", f"{field}={value}")


def cancel(job_ids: Sequence[str]) -> Argv:
    return ("scancel", *job_ids)


def inside(job_id: str, nodes: Sequence[str], cwd: Path, *, terminal: bool) -> Argv:
    """Runs what follows it once on each node that a job holds, beside what runs there already."""
    many = ("--label",) if len(nodes) > 1 else ()
    return (
        "srun",
        f"--jobid={job_id}",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}",
        f"--chdir={cwd}",
        "--overlap",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        "--export=ALL",
        *(("--pty",) if terminal else ("--unbuffered", *many)),
        "--",
    )


def step(request: StepRequest, hostfile: Path | None) -> Argv:
    """An srun step whose task numbers follow ``request.nodes``.

    Slurm sorts ``--nodelist``; only a host file (``SLURM_HOSTFILE``, distribution ``arbitrary``)
    keeps another order.
    """
    count = len(request.nodes)
    placement: tuple[str, ...]
    if hostfile is None:
        placement = (f"--nodelist={','.join(request.nodes)}", "--distribution=block")
    else:
        placement = ("--distribution=arbitrary",)
    output = "/dev/null" if request.output is None else str(request.output).replace("%", "%%")
    return (
        "srun",
        f"--job-name={request.name}",
        f"--nodes={count}",
        f"--ntasks={count * request.tasks_per_node}",
        f"--ntasks-per-node={request.tasks_per_node}",
        f"--cpus-per-task={request.cpus_per_task}",
        *placement,
        "--no-kill",  # a lost node must not end the step; sbatch's own flag does not reach srun
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--overlap",  # a preflight step and the ranks' step may be there together
        "--export=ALL",
        "--input=none",
        "--unbuffered",
        f"--mpi={request.mpi or 'none'}",
        f"--output={output}",
        *request.options,
        "--",
        *request.argv,
    )
