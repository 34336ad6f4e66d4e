"""Spec to plan (pure): the script, the run folder and the supervisor's configuration.

A plan prints as the script that will be sent, and sending it is all that is left to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from relight.errors import UsageError
from relight.resilience.config import (
    ArchiveConfig,
    CheckpointConfig,
    ComponentConfig,
    ContainerConfig,
    HealthConfig,
    NotifyConfig,
    RestartConfig,
    RunConfig,
)
from relight.resilience.run_folder import RunFolder
from relight.storage.retention import Best, Keep

from .clusters.slurm.size import is_fixed
from .home import from_home
from .launch_plan import ArrayPart, ClusterKind, LaunchPlan, Submitter
from .render import SbatchOption, ScriptValues, render_script
from .spec import Archive, Component, Container, JobSpec, KeepRules, Notify, Resources, SecretFile
from .spec_starters import command_per
from .spec_values import CheckSetting
from .units import parse_duration, parse_every, slurm_memory, slurm_time


def plan(
    spec: JobSpec, submitter: Submitter, cluster: ClusterKind, part: ArrayPart | None = None
) -> LaunchPlan:
    """The plan for a spec, or for a part of the tasks of its sweep.

    Raises:
        UsageError: a value cannot stand in a batch script.
    """
    config = run_config(spec, submitter)
    if cluster == "local":  # pretend nodes are in no register of names
        health = replace(config.health, skip=(*config.health.skip, "names"))
        config = replace(config, health=health)
    options = _sbatch_options(spec, config, part) if cluster == "slurm" else ()
    components = spec.resources.whole_components
    own = components[0].sbatch if components else {}
    passthrough = _passthrough(spec, own) if cluster == "slurm" else ()
    script = render_script(
        ScriptValues(
            version=submitter.version,
            made_by=submitter.made_by,
            options=options,
            passthrough=passthrough,
            others=tuple(_component_options(spec, one) for one in components[1:]),
            tasks=_hidden_tasks(config) if options else None,
            setup=tuple(spec.setup),
            python=submitter.python,
            run_dir=config.run_dir,
            first=None if part is None else part.first,
        )
    )
    return LaunchPlan(cluster=cluster, config=config, script=script)


def run_config(spec: JobSpec, submitter: Submitter) -> RunConfig:
    """What the supervisor is told."""
    here = submitter.working_dir
    run_dir = _absolute(spec.run_dir, here) or submitter.runs_dir / submitter.run_id
    resources, checkpoint, restart, health = (
        spec.resources,
        spec.checkpoint,
        spec.restart,
        spec.health,
    )
    working_dir = _working_dir(spec, submitter, run_dir)
    directory = _absolute(checkpoint.directory, here) or run_dir / "checkpoints"
    if spec.container is not None:
        _check_mountable(run_dir, directory, working_dir)
    return RunConfig(
        run_id=submitter.run_id,
        name=spec.name,
        run_dir=run_dir,
        command=tuple(spec.command),
        command_per=command_per(spec),
        resume=tuple(spec.resume or ()),
        working_dir=working_dir,
        nodes=resources.most_nodes,
        min_nodes=resources.least_nodes,
        spares=resources.spares,
        tasks_per_node=resources.tasks_per_node,
        cpus_per_task=resources.cpus_per_task,
        gpus_per_node=0 if resources.components else resources.gpus_per_node,
        components=tuple(map(_component, resources.whole_components)),
        mpi=spec.mpi,
        container=_container(spec.container, here),
        env=dict(spec.env),
        secret_files={
            name: str(_absolute(secret.file, here)) for name, secret in spec.secrets.items()
        },
        checkpoint=CheckpointConfig(
            directory=directory,
            interval=checkpoint.interval,
            keep=_keep(checkpoint.keep),
            drill=checkpoint.drill,
            lead_s=spec.lead_s,
            staging_bytes=checkpoint.staging if checkpoint.in_background else 0,
            reuse=checkpoint.reuse,
            tier=checkpoint.tiers.node if checkpoint.tiers is not None else None,
            tier_bytes=checkpoint.tiers.size if checkpoint.tiers is not None else 0,
            compress=checkpoint.compress,
            partner=checkpoint.tiers is not None and checkpoint.tiers.partner,
            archive=_archive(checkpoint.archive),
            overlap=checkpoint.overlap,
            signal=checkpoint.signal,
            done=checkpoint.done,
        ),
        restart=RestartConfig(
            mode=restart.mode,
            failures=restart.failures,
            no_progress=restart.no_progress,
            walltime_s=restart.walltime,
            warm=restart.warm,
            watch_hangs=restart.hang != "off",
            silence_s=restart.silence,
            idle_s=restart.idle,
            not_finite=restart.not_finite,
            hang_s=None if restart.hang in ("auto", "off") else parse_duration(restart.hang),
        ),
        health=HealthConfig(
            preflight=health.preflight != "off",
            active=health.preflight == "active",
            budget_s=health.budget,
            site_command=health.site_command,
            on_unknown=health.on_unknown,
            during_s=health.during,
            on_degrade=health.on_degrade,
            min_free_disk_bytes=health.min_free_disk,
            min_free_memory_bytes=health.min_free_memory,
            skip=tuple(name for name, setting in health.checks.items() if _is_off(setting)),
            limits={n: dict(of) for n, of in health.checks.items() if isinstance(of, dict)},
            mounts=tuple(health.mounts),
            xid_table=_path_text(_absolute(health.xid_table, here)),
        ),
        notify=_notify(spec.notify, here),
    )


def _component(one: Component) -> ComponentConfig:
    return ComponentConfig(
        name=one.name,
        nodes=one.nodes,
        tasks_per_node=one.tasks_per_node or 1,
        cpus_per_task=one.cpus_per_task or 1,
        gpus_per_node=one.gpus_per_node or 0,
        command=tuple(one.command or ()),
    )


def _keep(keep: KeepRules) -> Keep:
    steps, seconds = (None, None) if keep.every is None else parse_every(keep.every)
    best = keep.best
    return Keep(
        last=keep.last,
        every_steps=steps,
        every_s=seconds,
        best=None if best is None else Best(metric=best.metric, mode=best.mode, n=best.n),
    )


def _container(container: Container | None, here: Path) -> ContainerConfig | None:
    if container is None:
        return None
    image = container.image
    if re.match(r"[./~]", image):
        image = str(_absolute(image, here))
    elif container.runtime == "apptainer" and "://" not in image:
        image = str(here / image)
    mounts = tuple(re.sub(r"^~(?=[/:]|$)", str(Path.home()), mount) for mount in container.mounts)
    return ContainerConfig(image=image, runtime=container.runtime, mounts=mounts)


def _archive(archive: Archive | None) -> ArchiveConfig | None:
    if archive is None:
        return None
    return ArchiveConfig(url=archive.url, every=archive.every, last=archive.last)


def _notify(notify: Notify | None, here: Path) -> NotifyConfig | None:
    if notify is None:
        return None
    hook = notify.webhook
    return NotifyConfig(
        on=tuple(notify.on),
        webhook=hook if isinstance(hook, str) else None,
        webhook_file=str(_absolute(hook.file, here)) if isinstance(hook, SecretFile) else None,
        command=tuple(notify.command or ()),
    )


def _check_mountable(*folders: Path) -> None:
    for folder in folders:
        if re.search("[:,]", str(folder)):
            raise UsageError(
                f"container: {folder} cannot be mounted, because of the ':' or ',' in its name; "
                "choose another run_dir, checkpoint.directory or working_dir"
            )


def _working_dir(spec: JobSpec, submitter: Submitter, run_dir: Path) -> Path:
    wanted = _absolute(spec.working_dir, submitter.working_dir) or submitter.working_dir
    if submitter.tree is None:
        return wanted
    return RunFolder(run_dir).code / wanted.resolve().relative_to(submitter.tree)


def _is_off(setting: CheckSetting) -> bool:
    return not isinstance(setting, dict)


def _path_text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _absolute(path: str | None, here: Path) -> Path | None:
    return None if path is None else here / from_home(path)


def _sbatch_options(
    spec: JobSpec, config: RunConfig, part: ArrayPart | None
) -> tuple[SbatchOption, ...]:
    resources = spec.resources
    # Slurm expands % in file names; %% is a plain one.
    attempts = str(RunFolder(config.run_dir).attempts).replace("%", "%%")
    first = next(iter(resources.whole_components), None)
    count = _node_count(config) if first is None else str(first.nodes)
    values: dict[str, str | None] = {
        "job-name": config.run_id,
        **_of_nodes(count, first or resources),
        "chdir": str(config.working_dir),
        "output": f"{attempts}/%j.out",
        "signal": f"B:USR1@{round(config.checkpoint.lead_s)}",
    }
    if hidden := _hidden_tasks(config):
        del values["ntasks-per-node"]
        values["cpus-per-task"] = str(hidden[0] * hidden[1])
    if part is not None:
        values["array"] = part.option
        values["job-name"] = part.name(config.run_id)
        values["output"] = f"{attempts}/%A_%a.out"
    if resources.time is not None:
        values["time"] = slurm_time(resources.time)
    if resources.time_min is not None:
        values["time-min"] = slurm_time(resources.time_min)
    if config.restart.mode != "never":
        values["requeue"] = None
    return _options(values)


def _hidden_tasks(config: RunConfig) -> tuple[int, int] | None:
    """Where a job asks for all CPUs of a node as for one task: the tasks, and the CPUs of each."""
    if config.components or is_fixed(config):
        return None
    return config.tasks_per_node, config.cpus_per_task


def _of_nodes(count: str, kind: Resources | Component) -> dict[str, str | None]:
    """What is asked for of nodes of one kind."""
    values: dict[str, str | None] = {
        "nodes": count,
        "ntasks-per-node": str(kind.tasks_per_node),
        "cpus-per-task": str(kind.cpus_per_task),
    }
    if kind.gpus_per_node:
        values["gpus-per-node"] = str(kind.gpus_per_node)
    if kind.memory is not None:
        values["mem"] = slurm_memory(kind.memory)
    if kind.partition is not None:
        values["partition"] = kind.partition
    return values


def _component_options(spec: JobSpec, component: Component) -> tuple[SbatchOption, ...]:
    """Those of one that is not the first: the rest Slurm takes from that."""
    asked = _of_nodes(str(component.nodes), component)
    return (*_options(asked), *_passthrough(spec, component.sbatch))


def _node_count(config: RunConfig) -> str:
    most = config.nodes_wanted
    return str(most) if config.min_nodes is None else f"{config.min_nodes}-{most}"


def _passthrough(spec: JobSpec, own: Mapping[str, str | Literal[True]]) -> tuple[SbatchOption, ...]:
    """Options by their long names; those of a component count more than those of the run."""
    given = [(_long_name(name), value) for name, value in (*spec.sbatch.items(), *own.items())]
    return _options({name: None if value is True else str(value) for name, value in given})


def _long_name(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _options(values: Mapping[str, str | None]) -> tuple[SbatchOption, ...]:
    return tuple(SbatchOption(name=name, value=value) for name, value in values.items())
