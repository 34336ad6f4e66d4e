"""The whole cluster: up, down, status, and what can be done to its parts."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
from pathlib import Path

from . import daemons, hosts, network, release, user
from .config import (
    Layout,
    Settings,
    render_cgroup_conf,
    render_gres_conf,
    render_slurm_conf,
    render_slurmdbd_conf,
)
from .state import State, load, require
from .system import ClusterError, tail, wait_until


def up(settings: Settings, layout: Layout) -> bool:
    """Build the cluster; False if it runs already. A failure leaves nothing behind."""
    state = load(layout)
    if state is not None and all(process.alive() for process in state.processes.values()):
        if state.settings != settings:
            raise ClusterError("already up with other settings; use down first")
        return False
    user.require_name_free()
    down(layout)
    try:
        _build(settings, layout)
    except BaseException:  # an interrupt too must not leave half a cluster
        down(layout)
        raise
    return True


def down(layout: Layout) -> None:
    """Remove all of the cluster that is there; only its cache folder stays."""
    state = load(layout)
    if state is not None:
        for process in state.processes.values():
            process.end([signal.SIGKILL])
    network.remove_all()
    network.remove_names()
    user.remove()
    if layout.root.exists():
        _remove(layout.root)


def _remove(root: Path) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    try:
        root.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:  # the command `apart` has mounted it, and removes it
            raise


def _build(settings: Settings, layout: Layout) -> None:
    _write_files(settings, layout)
    state = State(settings, layout)
    state.save()
    state.uid = user.create(layout)
    state.save()
    network.write_names(settings)
    network.create_bridge()
    daemons.start_munged(state)
    if settings.accounting:
        daemons.start_mariadb(state)
        daemons.start_slurmdbd(state)
    daemons.start_slurmctld(state)
    for node in settings.node_names:
        hosts.boot(state, node)
    _wait_idle(state)


def _wait_idle(state: State) -> None:
    layout, names = state.layout, state.settings.node_names

    def dead() -> list[str]:
        return [name for name in state.processes if not state.alive(name)]

    wait_until(lambda: bool(dead()) or daemons.all_idle(state.settings, layout), 120)
    if dead():
        log = f"console-{dead()[0]}.log" if dead()[0] in names else f"{dead()[0]}.log"
        raise ClusterError(f"ended at once: {' '.join(dead())}{tail(layout.logs / log)}")
    if not daemons.all_idle(state.settings, layout):
        states = daemons.node_states(layout)
        raise ClusterError(f"hosts are not ready: {states}{tail(layout.logs / 'slurmctld.log')}")


def _write_files(settings: Settings, layout: Layout) -> None:
    for folder in (layout.root, layout.etc, layout.logs, layout.spool, layout.gpus):
        folder.mkdir(parents=True, exist_ok=folder == layout.root)
        folder.chmod(0o755)
    layout.hosts.mkdir(mode=0o700)  # one host must not see another's /tmp
    for index in range(settings.gpus):
        os.mknod(layout.gpus / f"gpu{index}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    plugins = None
    if settings.release:
        layout.programs.symlink_to(layout.release(settings.release))
        plugins = release.plugins(settings.release, layout)
    if settings.is_new:
        (layout.etc / "cgroup.conf").write_text(render_cgroup_conf(settings))
    layout.slurm_conf.write_text(render_slurm_conf(settings, layout, plugins))
    (layout.etc / "gres.conf").write_text(render_gres_conf(settings, layout))
    secret = layout.etc / "slurmdbd.conf"
    secret.touch(mode=0o600)
    secret.write_text(render_slurmdbd_conf(layout, plugins))


def node(action: str, name: str, layout: Layout) -> None:
    """Do something to one host: kill, start, cut or heal."""
    state = require(layout)
    if name not in state.settings.node_names:
        raise ClusterError(f"no host {name!r}; there are {' '.join(state.settings.node_names)}", 2)
    running = state.alive(name)
    if action == "start":
        if running:
            raise ClusterError(f"{name} runs already")
        hosts.boot(state, name)
    elif not running:
        raise ClusterError(f"{name} is not running")
    elif action == "kill":
        hosts.kill(state, name)
    else:
        network.set_cable(name, up=action == "heal")


def controller(action: str, layout: Layout) -> None:
    """Stop or start slurmctld."""
    state = require(layout)
    running = state.alive("slurmctld")
    if running == (action == "start"):
        raise ClusterError(f"the controller is {'' if running else 'not '}running")
    if action == "start":
        daemons.start_slurmctld(state)
    else:
        daemons.stop_slurmctld(state)


def status(layout: Layout) -> list[str]:
    """A line for each part of the cluster."""
    state = require(layout)
    database = ["mariadbd", "slurmdbd"] if state.settings.accounting else []
    services = ["munged", *database, "slurmctld"]
    lines = [f"{name}: {'running' if state.alive(name) else 'stopped'}" for name in services]
    slurm = daemons.node_states(layout) if state.alive("slurmctld") else {}
    for name in state.settings.node_names:
        power = "off" if not state.alive(name) else "on" if network.cable_up(name) else "cut"
        lines.append(f"{name}: {power}, slurm says {slurm.get(name, 'nothing')}")
    return lines
