"""The daemons that serve all hosts: munged, mariadbd, slurmdbd and slurmctld."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping

from .config import (
    ACCOUNTING_PORT,
    CONTROLLER,
    CONTROLLER_PORT,
    Layout,
    Settings,
    controller_address,
    environment,
)
from .state import State
from .system import ClusterError, accepts, call, spawn, wait_ready


def on_controller(argv: list[str]) -> list[str]:
    """A command line under the controller's host name."""
    script = f'hostname {CONTROLLER} && exec "$@"'
    return ["unshare", "--uts", "sh", "-c", script, "sh", *argv]


def start_munged(state: State) -> None:
    folder = state.layout.munge
    folder.mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(128))
    log = folder / "munged.log"
    process = spawn(
        [
            *("munged", "--foreground", f"--socket={state.layout.munge_socket}"),
            *(f"--key-file={key}", f"--pid-file={folder}/munged.pid"),
            *(f"--log-file={log}", f"--seed-file={folder}/munged.seed"),
        ],
        state.layout.logs / "munged.log",
    )
    state.record("munged", process)
    wait_ready("munged", lambda: accepts(str(state.layout.munge_socket)), process, log)


def prepare_mariadb(layout: Layout) -> None:
    """Copy an initialised, empty database into place; make the copy's original the first time."""
    package = "mariadb-server-core"
    version = call(["dpkg-query", "-W", "-f=${Version}", package]).replace(":", "-")
    template = layout.cache / f"mariadb-{version}"
    if not template.exists():
        fresh = layout.cache / "mariadb-fresh"
        if fresh.exists():
            shutil.rmtree(fresh)
        call(
            [
                *("mariadb-install-db", "--no-defaults", "--user=mysql", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", f"--datadir={fresh}"),
                "--innodb-log-file-size=8M",
            ],
            timeout=120,
        )
        fresh.rename(template)
    layout.mariadb.mkdir(mode=0o700)
    shutil.chown(layout.mariadb, "mysql", "mysql")
    call(["cp", "-a", str(template), f"{layout.mariadb}/data"])


def start_mariadb(state: State) -> None:
    """Start a database without network and without passwords, in a folder closed to others."""
    layout = state.layout
    prepare_mariadb(layout)
    log = layout.logs / "mariadbd.log"
    process = spawn(
        [
            *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={layout.mariadb}/data"),
            *(f"--socket={layout.mariadb_socket}", f"--pid-file={layout.mariadb}/mariadbd.pid"),
            *("--skip-networking", "--skip-grant-tables", "--innodb-log-file-size=8M"),
            # A crash may lose data, nobody needs it after `down`.
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"),
        ],
        log,
    )
    state.record("mariadbd", process)
    wait_ready("mariadbd", lambda: accepts(str(layout.mariadb_socket)), process, log)


def start_slurmdbd(state: State) -> None:
    layout = state.layout
    env = environment(layout)
    process = spawn(
        on_controller(["slurmdbd", "-D"]),
        layout.logs / "slurmdbd.out",
        env=env | {"MYSQL_UNIX_PORT": str(layout.mariadb_socket)},
    )
    state.record("slurmdbd", process)
    address = (controller_address(), ACCOUNTING_PORT)
    wait_ready("slurmdbd", lambda: accepts(address), process, layout.logs / "slurmdbd.log")
    log = layout.logs / "slurmdbd.log"
    wait_ready("the accounting", lambda: is_accounted(env), process, log)


def is_accounted(env: Mapping[str, str]) -> bool:
    """Whether slurmdbd knows the cluster; it may listen before its database takes new names."""
    show = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "mini", "format=cluster"]
    try:
        if call(show, env=env).strip() != "mini":
            call(["sacctmgr", "--immediate", "add", "cluster", "mini"], env=env)
    except ClusterError:
        return False
    return True


def start_slurmctld(state: State) -> None:
    layout = state.layout
    env = environment(layout)
    process = spawn(on_controller(["slurmctld", "-D"]), layout.logs / "slurmctld.out", env=env)
    state.record("slurmctld", process)
    address = (controller_address(), CONTROLLER_PORT)
    wait_ready("slurmctld", lambda: accepts(address), process, layout.logs / "slurmctld.log")


def stop_slurmctld(state: State) -> None:
    state.processes["slurmctld"].end([signal.SIGTERM, signal.SIGKILL])
    state.forget("slurmctld")


def node_states(layout: Layout) -> dict[str, str]:
    """What the controller says of each host; empty when it does not answer."""
    argv = ["sinfo", "--noheader", "--Node", "--partition=low", "--format=%N %T"]
    try:
        shown = call(argv, env=environment(layout))
    except ClusterError:
        return {}
    return dict(line.split(maxsplit=1) for line in shown.splitlines())


def all_idle(settings: Settings, layout: Layout) -> bool:
    states = node_states(layout)
    return len(states) == settings.nodes and set(states.values()) == {"idle"}
