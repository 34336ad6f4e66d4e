"""A first ``job.yaml`` for a site, with comments that say what its Slurm does (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from .site import Partition, Site


def starter(site: Site | None) -> str:
    """The text of a spec that is valid as it is; without Slurm one for this machine."""
    return "\n".join([*_head(site), *_resources(site), *_rest(site), ""])


def _head(site: Site | None) -> Iterator[str]:
    where = f"Slurm {site.version}" if site else "this machine; no Slurm was found"
    verb = "submit" if site else "run"
    yield f"# Made by `relight init` for {where}. `relight {verb} job.yaml` starts it,"
    yield "# `relight plan job.yaml` shows what would be sent, `relight schema` has all keys."
    yield "name: job"
    yield "# Run once per task, by no shell; for pipes write [bash, -c, '...']."
    yield "command: python train.py"


def _resources(site: Site | None) -> Iterator[str]:
    yield ""
    yield "resources:"
    yield "  nodes: 1"
    yield "  # spares: 1          # nodes more, to take the place of one that fails"
    yield "  tasks_per_node: 1"
    yield "  # cpus_per_task: 4"
    yield "  # gpus_per_node: 1"
    yield "  # memory: 8GB        # per node"
    yield "  time: 1:00:00        # of one attempt; the run goes on in the next one"
    if site is None:
        return
    usable = [one for one in site.partitions if one.state == "UP"]
    chosen = next((one for one in usable if one.default), usable[0] if usable else None)
    for partition in usable:
        mark = "" if partition is chosen else "# "
        yield f"  {mark}partition: {_quoted(partition.name):10} # {_of_partition(partition, site)}"


def _of_partition(partition: Partition, site: Site) -> str:
    limit = partition.max_time.lower()
    if not partition.preempts:
        return f"limit {limit}; not preempted"
    notice_s = partition.grace_s + site.kill_wait_s
    return f"limit {limit}; preempted with {notice_s} s notice: a save must fit into that"


def _rest(site: Site | None) -> Iterator[str]:
    yield ""
    if site is not None:
        yield "# sbatch: {account: abc}            # any other option of sbatch, by its long name"
    yield "# setup: [module load cuda]         # shell lines before the program"
    yield '# env: {OMP_NUM_THREADS: "4"}'
    yield "# secrets: {WANDB_KEY: {file: ~/.wandb}}   # read when ranks start, never stored"
    yield "# code: snapshot                    # a restart runs the code as it is now"
    yield "# mpi: pmix                         # for MPI programs"
    yield ""
    yield "checkpoint:"
    yield "  interval: auto      # or 20 steps, 10min"
    yield "  keep: {last: 3}"
    yield "restart:"
    if site is not None and not site.job_requeue:
        yield "  # Jobs are not requeued here by default: a run comes back as a new job."
    yield "  failures: 3         # forgiven without a newer checkpoint in between"
    yield "  # walltime: 7d      # no restart after so long"


def _quoted(name: str) -> str:
    return (
        name
        if name.replace("-", "").replace("_", "").isalnum() and not name.isdecimal()
        else ("'" + name.replace("'", "''") + "'")
    )
