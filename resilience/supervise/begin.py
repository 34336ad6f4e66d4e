"""The first lines of a supervisor: its log, its limits, and whether there is anything to do."""

from __future__ import annotations

import logging
import resource
import sys

from ..config import RunConfig
from ..decide.actions import Finish
from ..decide.codec import finish_from_json
from ..decide.policy import Policy
from ..decide.rules import Rule
from ..run_folder import RunFolder
from .cluster import Allocation, Cluster
from .journal import read_journals


def open_log(config: RunConfig, allocation: Allocation) -> None:
    """What the supervisor says of itself goes there."""
    logging.raiseExceptions = False  # on a full disk: what it says is no authority
    logging.basicConfig(
        handlers=[_log_handler(config, allocation)],
        level=logging.INFO,
        format="%(asctime)s relight: %(message)s",
        datefmt="%H:%M:%S",
    )


def policy_of(config: RunConfig, rules: tuple[Rule, ...]) -> Policy:
    """The machine's limits, from the run's configuration."""
    return Policy(
        nodes=config.nodes,
        min_nodes=config.min_nodes,
        tasks_per_node=config.tasks_per_node,
        ranks=config.world_size if config.components else None,
        keep_places=config.checkpoint.tier is not None and not config.components,
        script=config.program == "script",
        saves_itself=bool(config.checkpoint.signal or config.resume),
        preflight=config.health.preflight,
        on_degrade=config.health.on_degrade,
        not_finite=config.restart.not_finite,
        restart=config.restart.mode,
        failures=config.restart.failures,
        no_progress=config.restart.no_progress,
        walltime_s=config.restart.walltime_s,
        rules=rules,
    )


def decided_before(config: RunConfig, cluster: Cluster) -> Finish | None:
    """The end of this attempt when an earlier life decided it: a decision is made once."""
    attempt = cluster.allocation().attempt
    for record in read_journals(RunFolder(config.run_dir).journals):
        if (record.attempt, record.name) == (attempt, "Finish"):
            return finish_from_json(record.data)
    return None


def allow_many_connections() -> None:
    """Every agent is a connection; the usual soft limit of 1024 files would end it there."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _log_handler(config: RunConfig, allocation: Allocation) -> logging.Handler:
    """The job's output; that of a batch script holds what the script wrote, and nothing else."""
    if config.program == "ranks":
        return logging.StreamHandler(sys.stderr)
    log = RunFolder(config.run_dir).supervisor_log(allocation.attempt)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(log)
    except OSError:
        return logging.NullHandler()
